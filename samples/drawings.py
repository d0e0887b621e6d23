"""The drawings of the sample set, in Pillow: each function fills one canvas of WIDTH by HEIGHT and takes nothing else.

They are drawn four times larger and scaled down, which smooths the edges. Same numbers, same picture.
"""

import math
from collections.abc import Callable
from random import Random

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 512, 384
ZOOM = 4
EDGE_OF_GRADIENT = 181  # Pillow's radial gradient reaches 255 in its corners, so 255 / sqrt(2) at its edges

Colour = tuple[int, int, int]


class Canvas:
    """A drawing surface in units of the final picture; (0, 0) is the top left corner."""

    def __init__(self, top: Colour, bottom: Colour) -> None:
        self.image = Image.new("RGB", (WIDTH * ZOOM, HEIGHT * ZOOM))
        self.pen = ImageDraw.Draw(self.image)
        for y in range(HEIGHT * ZOOM):
            self.pen.line([(0, y), (WIDTH * ZOOM, y)], fill=blend(top, bottom, y / (HEIGHT * ZOOM)))

    def disc(self, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
        self.pen.ellipse([(x - rx) * ZOOM, (y - ry) * ZOOM, (x + rx) * ZOOM, (y + ry) * ZOOM], fill=fill)

    def shape(self, points: list[tuple[float, float]], fill: Colour) -> None:
        self.pen.polygon([(x * ZOOM, y * ZOOM) for x, y in points], fill=fill)

    def stroke(self, points: list[tuple[float, float]], fill: Colour, width: float) -> None:
        scaled = [(x * ZOOM, y * ZOOM) for x, y in points]
        self.pen.line(scaled, fill=fill, width=round(width * ZOOM), joint="curve")

    def curve(self, box: tuple[float, float, float, float], start: float, end: float, fill: Colour, w: float) -> None:
        self.pen.arc([side * ZOOM for side in box], start, end, fill=fill, width=round(w * ZOOM))

    def glow(self, x: float, y: float, radius: float, colour: Colour, strength: float = 0.5) -> None:
        """Light that fades with the distance from (x, y)."""
        size = round(radius * ZOOM)
        fade = Image.radial_gradient("L").point(lambda v: round(255 * max(0.0, 1 - v / EDGE_OF_GRADIENT) * strength))
        mask = fade.resize((2 * size, 2 * size))
        light = Image.new("RGB", mask.size, colour)
        self.image.paste(light, (round(x * ZOOM) - size, round(y * ZOOM) - size), mask)

    def finished(self) -> Image.Image:
        return self.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def blend(a: Colour, b: Colour, share: float) -> Colour:
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def repeatable(seed: int) -> Random:
    """Where the stars, drops and flowers go, the same every time."""
    return Random(seed)  # noqa: S311 - a picture, not a secret


def ridge(base: float, height: float, waves: float, shift: float) -> list[tuple[float, float]]:
    """A line of hills across the picture, closed along the lower edge."""
    xs = range(0, WIDTH + 1, 4)
    tops = [(x, base - height * (0.6 + 0.4 * math.sin(x / WIDTH * waves + shift))) for x in xs]
    return [(0.0, HEIGHT), *tops, (WIDTH, HEIGHT)]


def wing(x: float, y: float, length: float, tilt: float, side: int, width: float) -> list[tuple[float, float]]:
    """One petal that starts at (x, y): `tilt` in radians below the horizontal, `width` as a share of the length."""
    points = []
    for step in range(61):
        t = step / 60 * math.tau
        along, across = length * (1 - math.cos(t)) / 2, length * width * math.sin(t) * (1 - 0.6 * math.cos(t)) / 1.3
        points.append(
            (
                x + side * (along * math.cos(tilt) - across * math.sin(tilt)),
                y + along * math.sin(tilt) + across * math.cos(tilt),
            )
        )
    return points


def sunrise() -> Image.Image:
    c = Canvas((92, 142, 196), (255, 206, 140))
    c.glow(300, 205, 240, (255, 240, 190), 0.9)
    c.disc(300, 205, 48, 48, (255, 236, 160))
    for base, height, waves, shift, colour in [
        (285, 70, 7.0, 0.4, (168, 140, 158)),
        (330, 80, 9.0, 2.2, (116, 124, 118)),
        (372, 75, 6.0, 4.0, (78, 112, 74)),
        (410, 70, 8.0, 1.0, (48, 84, 52)),
    ]:
        c.shape(ridge(base, height, waves, shift), colour)
    return c.finished()


def house() -> Image.Image:
    c = Canvas((14, 22, 58), (58, 62, 112))
    stars = repeatable(4)
    for _ in range(70):
        size = stars.choice([0.6, 0.8, 1.3])
        c.disc(stars.uniform(0, WIDTH), stars.uniform(0, 210), size, size, (236, 236, 250))
    c.glow(410, 76, 90, (240, 240, 220))
    c.disc(410, 76, 30, 30, (246, 242, 214))
    c.shape(ridge(320, 50, 5.0, 1.5), (30, 48, 60))
    c.glow(232, 262, 170, (255, 206, 120), 0.35)
    c.shape([(150, 200), (314, 200), (314, 318), (150, 318)], (112, 74, 66))
    c.shape([(134, 204), (232, 128), (330, 204)], (70, 40, 46))
    c.shape([(276, 130), (298, 130), (298, 182), (276, 166)], (84, 54, 54))
    for x in (172, 256):
        c.shape([(x, 226), (x + 38, 226), (x + 38, 264), (x, 264)], (255, 218, 124))
        c.stroke([(x + 19, 226), (x + 19, 264)], (112, 74, 66), 3)
        c.stroke([(x, 245), (x + 38, 245)], (112, 74, 66), 3)
    c.shape([(218, 262), (248, 262), (248, 318), (218, 318)], (64, 40, 40))
    c.shape([(0, 314), (WIDTH, 310), (WIDTH, HEIGHT), (0, HEIGHT)], (34, 58, 48))
    return c.finished()


def storm() -> Image.Image:
    c = Canvas((26, 28, 42), (86, 84, 102))
    c.glow(330, 120, 230, (170, 160, 210), 0.6)
    for x, y, r in [(60, 40, 70), (150, 20, 80), (250, 46, 72), (340, 18, 86), (440, 44, 78), (520, 20, 70)]:
        c.disc(x, y, r * 1.4, r * 0.8, (44, 46, 62))
    bolt = [(338, 84), (306, 166), (332, 162), (296, 262), (362, 146), (334, 150), (366, 84)]
    c.shape(bolt, (255, 246, 196))
    c.shape(
        [(0, 300), (90, 190), (170, 280), (270, 176), (380, 290), (450, 222), (512, 280), (512, 384), (0, 384)],
        (40, 42, 54),
    )
    c.shape([(0, 384), (0, 330), (140, 268), (260, 340), (400, 286), (512, 340), (512, 384)], (24, 26, 34))
    rain = repeatable(9)
    for _ in range(150):
        x, y = rain.uniform(0, WIDTH), rain.uniform(70, HEIGHT)
        c.stroke([(x, y), (x - 5, y + 16)], (132, 138, 160), 0.8)
    return c.finished()


def fish() -> Image.Image:
    c = Canvas((110, 196, 218), (16, 84, 132))
    c.glow(150, 0, 260, (214, 244, 246), 0.6)
    for x, y, s in [(190, 170, 1.0), (370, 262, 0.66)]:
        orange, deep = (246, 142, 52), (214, 94, 34)
        c.shape([(x + 66 * s, y), (x + 122 * s, y - 44 * s), (x + 108 * s, y), (x + 122 * s, y + 44 * s)], deep)
        c.shape([(x - 20 * s, y - 34 * s), (x + 18 * s, y - 76 * s), (x + 46 * s, y - 30 * s)], deep)
        c.disc(x, y, 84 * s, 46 * s, orange)
        for offset in (-30, 22):
            c.curve(
                (x + (offset - 22) * s, y - 44 * s, x + (offset + 22) * s, y + 44 * s), 300, 60, (252, 240, 226), 9 * s
            )
        c.disc(x - 50 * s, y - 10 * s, 10 * s, 10 * s, (255, 255, 255))
        c.disc(x - 52 * s, y - 10 * s, 5 * s, 5 * s, (20, 24, 32))
        c.shape([(x + 4 * s, y + 6 * s), (x + 38 * s, y + 30 * s), (x + 2 * s, y + 28 * s)], deep)
    for x, y, r in [(84, 130, 7), (72, 104, 5), (90, 82, 9), (300, 220, 4), (292, 204, 6), (430, 120, 5)]:
        c.disc(x, y, r, r, (190, 230, 240))
        c.disc(x, y, r - 1.6, r - 1.6, (120, 196, 218))
    c.shape(ridge(400, 40, 8.0, 0.8), (196, 178, 128))
    for x in (40, 60, 452, 474, 492):
        blade = [(x + 9 * math.sin(t / 5 + x), 380 - t * 3.4) for t in range(36)]
        c.stroke(blade, (40, 124, 92), 6)
    return c.finished()


def butterfly() -> Image.Image:
    c = Canvas((168, 214, 240), (232, 244, 232))
    c.shape(ridge(350, 50, 5.0, 0.3), (128, 178, 96))
    c.shape(ridge(392, 56, 7.0, 2.6), (98, 154, 76))
    flowers = repeatable(12)
    for _ in range(60):
        x, y = flowers.uniform(0, WIDTH), flowers.uniform(345, 380)
        c.disc(x, y, 4, 4, flowers.choice([(250, 226, 92), (244, 150, 178), (252, 252, 246)]))
    for side in (-1, 1):
        c.shape(wing(256, 184, 158, -0.62, side, 0.46), (60, 36, 96))
        c.shape(wing(256 + side * 10, 178, 132, -0.62, side, 0.40), (122, 86, 200))
        c.shape(wing(256, 190, 118, 0.62, side, 0.46), (60, 36, 96))
        c.shape(wing(256 + side * 10, 194, 94, 0.62, side, 0.40), (236, 132, 168))
        c.disc(256 + side * 98, 118, 15, 15, (252, 222, 120))
        c.disc(256 + side * 72, 236, 12, 12, (252, 240, 220))
        c.stroke([(256 + side * t, 132 - t * 1.6 + t * t / 60) for t in range(2, 34)], (46, 34, 44), 3)
    c.disc(256, 196, 9, 62, (46, 34, 44))
    c.disc(256, 134, 12, 12, (46, 34, 44))
    return c.finished()


def umbrella() -> Image.Image:
    c = Canvas((126, 138, 154), (176, 186, 196))
    c.shape([(0, 316), (WIDTH, 316), (WIDTH, HEIGHT), (0, HEIGHT)], (104, 114, 126))
    rain = repeatable(2)
    for _ in range(170):
        x, y = rain.uniform(0, WIDTH), rain.uniform(0, 330)
        c.stroke([(x, y), (x - 4, y + 15)], (206, 216, 228), 1.1)
    c.disc(262, 344, 120, 12, (86, 96, 108))
    c.stroke([(256, 90), (256, 318)], (70, 48, 38), 7)
    c.curve((222, 296, 260, 342), 0, 180, (70, 48, 38), 7)
    c.pen.pieslice([96 * ZOOM, 76 * ZOOM, 416 * ZOOM, 356 * ZOOM], 180, 360, fill=(202, 42, 50))
    c.pen.pieslice([196 * ZOOM, 76 * ZOOM, 316 * ZOOM, 356 * ZOOM], 180, 360, fill=(226, 72, 74))
    for x in range(96, 416, 40):
        c.disc(x + 20, 218, 20, 13, (150, 162, 176))
    c.stroke([(256, 62), (256, 84)], (70, 48, 38), 5)
    c.stroke([(256, 206), (256, 318)], (70, 48, 38), 7)
    return c.finished()


def balloons() -> Image.Image:
    c = Canvas((74, 150, 222), (206, 232, 248))
    for x, y, r in [(70, 290, 34), (112, 280, 44), (160, 294, 34), (400, 80, 26), (432, 72, 34), (468, 82, 26)]:
        c.disc(x, y, r * 1.3, r * 0.7, (246, 250, 254))
    for x, y, tone in [(178, 150, (228, 62, 72)), (262, 108, (250, 196, 62)), (340, 164, (76, 178, 110))]:
        tail = [(x + (250 - x) * t / 30 + 5 * math.sin(t / 4), y + 66 + t * 6.4) for t in range(31)]
        c.stroke(tail, (92, 96, 110), 1.5)
        c.shape([(x, y + 58), (x - 8, y + 72), (x + 8, y + 72)], blend(tone, (0, 0, 0), 0.2))
        c.disc(x, y, 50, 61, tone)
        c.glow(x - 18, y - 24, 26, (255, 255, 255), 0.75)
    return c.finished()


def smile() -> Image.Image:
    c = Canvas((250, 222, 150), (246, 178, 120))
    c.shape([(170, 384), (196, 322), (316, 322), (342, 384)], (64, 134, 168))
    c.shape([(232, 290), (280, 290), (280, 338), (256, 352), (232, 338)], (226, 170, 128))
    c.disc(256, 150, 118, 112, (84, 52, 36))
    c.disc(256, 190, 96, 116, (240, 190, 148))
    c.disc(256, 92, 104, 48, (84, 52, 36))
    for side in (-1, 1):
        c.disc(256 + side * 98, 196, 14, 22, (232, 178, 136))
        c.curve((256 + side * 38 - 20, 162, 256 + side * 38 + 20, 198), 190, 350, (52, 36, 30), 6)
        c.curve((256 + side * 38 - 24, 134, 256 + side * 38 + 24, 166), 200, 340, (84, 52, 36), 6)
        c.glow(256 + side * 58, 224, 26, (236, 124, 112), 0.6)
    c.curve((244, 190, 272, 222), 20, 140, (206, 146, 108), 4)
    c.pen.chord([204 * ZOOM, 200 * ZOOM, 308 * ZOOM, 278 * ZOOM], 15, 165, fill=(150, 44, 52))
    c.pen.chord([212 * ZOOM, 204 * ZOOM, 300 * ZOOM, 262 * ZOOM], 34, 146, fill=(252, 250, 244))
    return c.finished()


def worry() -> Image.Image:
    c = Canvas((26, 32, 58), (54, 60, 88))
    c.glow(256, 190, 220, (120, 132, 176), 0.4)
    c.shape([(166, 384), (194, 324), (318, 324), (346, 384)], (58, 62, 78))
    c.shape([(232, 290), (280, 290), (280, 338), (256, 352), (232, 338)], (150, 124, 118))
    c.disc(256, 194, 94, 118, (176, 148, 138))
    c.pen.chord([158 * ZOOM, 66 * ZOOM, 354 * ZOOM, 226 * ZOOM], 190, 350, fill=(40, 34, 40))
    for side in (-1, 1):
        c.disc(256 + side * 38, 196, 17, 14, (234, 232, 228))
        c.disc(256 + side * 38, 201, 8, 8, (38, 40, 54))
        c.stroke([(256 + side * 18, 158), (256 + side * 58, 172)], (40, 34, 40), 7)
        c.curve((256 + side * 38 - 18, 202, 256 + side * 38 + 18, 226), 30, 150, (138, 112, 108), 3)
    c.curve((246, 198, 270, 236), 20, 140, (140, 114, 106), 4)
    c.curve((222, 254, 290, 296), 205, 335, (96, 58, 66), 7)
    c.disc(300, 236, 5, 8, (150, 190, 226))
    c.shape([(296, 233), (304, 233), (300, 220)], (150, 190, 226))
    return c.finished()


DRAWINGS: dict[str, Callable[[], Image.Image]] = {
    draw.__name__: draw for draw in (sunrise, house, storm, fish, butterfly, umbrella, balloons, smile, worry)
}
