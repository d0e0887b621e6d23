"""Spaces of difficulty: a file defines points, and points define cases. Only `dataset_builder` imports Django.

    spec = read_space(text)                                     # spec.py: the validated file, or SpaceError
    space = resolve_space(spec, degree=1, density="corner")     # spaces.py: the points and their numbers of cases
    for item in generate_point(space.points[0]): ...            # items.py: every case of a point in order
    describe_gaps(space)                                        # items.py: points with too few different cases

`manifolds` contains the rules of one parameter.
"""
