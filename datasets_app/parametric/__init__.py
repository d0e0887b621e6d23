"""Spaces of difficulty: from one file to points, and from points to cases. Pure: no module here imports Django.

    spec = read_space(text)                                     # spec.py: the file, or SpaceError
    space = resolve(spec, degree=1, density="corner")           # spaces.py: the points and the number of cases
    for item in generate_items(space): ...                      # items.py: every case in order

`manifolds` has the rules of one parameter, `seeds` the random stream of one point.
"""
