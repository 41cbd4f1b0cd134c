import base64
import io

import torch
from PIL import Image

from messi.diagnostics.pictures import surest_mistakes, thumbnail


def opened(address: str) -> Image.Image:
    head, content = address.split(",")
    assert head == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_thumbnail_keeps_shape_and_colour_and_is_small() -> None:
    pixels = torch.zeros(3, 200, 100, dtype=torch.uint8)
    pixels[0] = 200
    picture = opened(thumbnail(pixels))
    assert (picture.format, picture.size) == ("WEBP", (28, 56))
    red, green, blue = picture.convert("RGB").getpixel((10, 20))  # type: ignore[misc]
    # WebP keeps colours to a few levels of 255.
    assert abs(red - 200) < 8
    assert max(green, blue) < 8


def test_noise_takes_a_few_kilobytes_and_small_images_keep_their_size() -> None:
    noise = torch.randint(256, (3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert len(thumbnail(noise)) < 4000
    assert opened(thumbnail(noise[:1, :20, :20])).size == (20, 20)


def test_the_most_confident_mistakes_come_first_and_correct_answers_never() -> None:
    logits = torch.tensor([[5.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 3.0], [9.0, 0.0]])
    labels = torch.tensor([0, 1, 0, 0, 1])
    everywhere = torch.ones(5, dtype=torch.bool)
    assert surest_mistakes(logits, labels, everywhere, most=8) == [4, 3, 2, 1]
    assert surest_mistakes(logits, labels, torch.tensor([True, True, True, False, False]), most=8) == [2, 1]
    many = surest_mistakes(logits.repeat(9, 1), labels.repeat(9), everywhere.repeat(9), most=8)
    assert many == [4, 9, 14, 19, 24, 29, 34, 39], "eight of the most confident"
