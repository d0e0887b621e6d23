"""What is in the sample set: which crop of which photograph, which drawing, and the made-up ratings.

Every source photograph is in the public domain or under CC0; SOURCES.md says where each comes from and who took it.
"""

from typing import NamedTuple


class Source(NamedTuple):
    """A photograph that crops are cut from: its file in the folder of originals, and where it comes from."""

    file: str
    source: str
    licence: str


class Picture(NamedTuple):
    """One sample image: a crop (source and box) or a drawing (its function), with its made-up mean ratings."""

    key: str
    category: str
    caption: str
    source: str  # a key of SOURCES, or "drawing"
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels of the source; zeros for a drawing
    valence: float  # made up, on the scale 1 to 7
    arousal: float


DRAWN = (0, 0, 0, 0)

SOURCES = {
    "astronaut": Source("astronaut.png", "scikit-image 'astronaut' (NASA)", "public domain"),
    "camera": Source("camera.png", "scikit-image 'camera' (Lav Varshney)", "CC0"),
    "cat": Source("chelsea.png", "scikit-image 'chelsea' (Stefan van der Walt)", "CC0"),
    "coffee": Source("coffee.png", "scikit-image 'coffee' (Rachel Michetti)", "CC0"),
    "brick": Source("brick.png", "scikit-image 'brick' (CC0Textures)", "CC0"),
    "hubble": Source("hubble_deep_field.jpg", "scikit-image 'hubble_deep_field' (NASA)", "public domain"),
    "rocket": Source("rocket.jpg", "scikit-image 'rocket' (SpaceX)", "public domain"),
    "raccoon": Source("face.dat", "SciPy 'face' (public-domain-image.com)", "CC0"),
    "officer": Source("grace_hopper.jpg", "Matplotlib 'grace_hopper' (United States Navy)", "public domain"),
}

PICTURES = [
    Picture("cat-face", "Animal", "A tabby cat looks past the camera", "cat", (25, 0, 425, 300), 5.9, 3.6),
    Picture("cat-eyes", "Animal", "The green eyes of a cat", "cat", (105, 20, 345, 200), 5.4, 4.1),
    Picture("cat-nose", "Animal", "Nose and whiskers of a cat", "cat", (190, 108, 430, 288), 5.7, 3.2),
    Picture("raccoon", "Animal", "A raccoon among palm leaves", "raccoon", (0, 0, 1024, 768), 5.6, 4.2),
    Picture("raccoon-face", "Animal", "The face of a raccoon, ears up", "raccoon", (392, 20, 952, 440), 6.0, 4.0),
    Picture("raccoon-paw", "Animal", "The paw of a raccoon on a leaf", "raccoon", (470, 380, 890, 695), 4.8, 3.4),
    Picture("fish", "Animal", "Two orange fish under water (drawing)", "drawing", DRAWN, 5.2, 3.0),
    Picture("butterfly", "Animal", "A butterfly over a meadow (drawing)", "drawing", DRAWN, 6.1, 3.3),
    Picture("coffee-cup", "Object", "An espresso in a red cup", "coffee", (40, 0, 573, 400), 5.5, 3.4),
    Picture("coffee-crema", "Object", "The surface of an espresso", "coffee", (170, 25, 430, 220), 5.2, 3.1),
    Picture("teaspoon", "Object", "A teaspoon on a saucer", "coffee", (250, 205, 510, 400), 4.3, 2.1),
    Picture("helmet", "Object", "The helmet of a space suit", "astronaut", (232, 332, 472, 512), 4.9, 3.7),
    Picture("bricks", "Object", "A path of bricks", "brick", (0, 64, 512, 448), 3.8, 1.9),
    Picture("tripod", "Object", "A camera on a tripod", "camera", (222, 130, 472, 318), 4.2, 2.4),
    Picture("umbrella", "Object", "A red umbrella in the rain (drawing)", "drawing", DRAWN, 3.9, 2.8),
    Picture("balloons", "Object", "Three balloons in a clear sky (drawing)", "drawing", DRAWN, 6.0, 4.4),
    Picture("astronaut", "Person", "An astronaut smiles for her portrait", "astronaut", (16, 0, 496, 360), 5.8, 3.9),
    Picture("astronaut-smile", "Person", "The face of an astronaut", "astronaut", (130, 5, 330, 155), 6.0, 3.8),
    Picture("photographer", "Person", "A photographer at work", "camera", (0, 20, 512, 404), 4.6, 3.0),
    Picture("photographer-face", "Person", "A photographer at the viewfinder", "camera", (110, 40, 390, 250), 4.5, 3.1),
    Picture("officer", "Person", "An officer in uniform before a flag", "officer", (0, 0, 512, 384), 4.4, 3.2),
    Picture("officer-face", "Person", "The stern face of an officer", "officer", (120, 110, 420, 335), 4.0, 3.5),
    Picture("smile", "Person", "A smiling face (drawing)", "drawing", DRAWN, 6.3, 4.0),
    Picture("worry", "Person", "A worried face at night (drawing)", "drawing", DRAWN, 2.4, 4.3),
    Picture("launch-pad", "Scene", "A rocket on its pad at dusk", "rocket", (36, 0, 605, 427), 5.3, 4.9),
    Picture("launch-lights", "Scene", "Lights around a rocket at dusk", "rocket", (180, 245, 420, 425), 5.0, 4.6),
    Picture("deep-field", "Scene", "Thousands of far galaxies", "hubble", (0, 60, 1000, 810), 5.9, 4.7),
    Picture("galaxies", "Scene", "A few galaxies close up", "hubble", (560, 300, 880, 540), 5.7, 4.3),
    Picture("palm-leaves", "Scene", "Palm leaves", "raccoon", (0, 420, 464, 768), 5.0, 2.5),
    Picture("sunrise", "Scene", "Sunrise over hills (drawing)", "drawing", DRAWN, 6.4, 3.1),
    Picture("house", "Scene", "A house with lit windows at night (drawing)", "drawing", DRAWN, 5.1, 2.9),
    Picture("storm", "Scene", "Lightning over dark mountains (drawing)", "drawing", DRAWN, 2.9, 5.6),
]
