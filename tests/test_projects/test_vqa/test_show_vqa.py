"""The attention picture: the tool prints and draws the outputs of the model."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from projects.vqa.tools import show_vqa
from projects.vqa.vqa.visualization import draw_looks
from tests.config_files import build
from vitnas_core.errors import VitnasError

from .test_configs import Config, write_small

QUESTIONS = ['Is there a 7?', 'How many digits are there?']


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, str]:
    """Config, checkpoint and image."""
    monkeypatch.chdir(tmp_path)
    config = write_small('s3-micro_8e_scenes', monkeypatch)
    torch.manual_seed(0)
    torch.save(build(Config.fromfile(config)).state_dict(), 'weights.pth')
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    cv2.imwrite('image.png', image)
    return config, 'weights.pth', 'image.png'


def test_shows(files: tuple[str, str, str], capsys: pytest.CaptureFixture) -> None:
    config, checkpoint, image = files
    arguments = ['--config', config, '--checkpoint', checkpoint, '--out', 'seen.png']
    looks = show_vqa.main([image, *QUESTIONS, *arguments])
    assert [one.question for one in looks] == QUESTIONS
    assert Path('seen.png').read_bytes().startswith(b'\x89PNG')
    for one, line in zip(looks, capsys.readouterr().out.splitlines()):
        assert line.startswith(f'{one.question} {one.answers[0][0]} (')
        assert one.maps.shape == (1, 4, 6)  # 64 × 96 pixels, strides of 16
        assert (one.maps > 0).all() and 0 < one.maps.sum() < 1  # the rest is spent on words
        scores = [score for _, score in one.answers]
        assert scores == sorted(scores, reverse=True) and len(scores) == 3
    figure = draw_looks(cv2.imread(image), looks)
    assert [axes.get_title(loc='left') for axes in figure.axes[::2]] == QUESTIONS


def test_bad_input(files: tuple[str, str, str]) -> None:
    config, checkpoint, image = files
    arguments = ['--config', config, '--checkpoint', checkpoint, '--out', 'seen.png']
    with pytest.raises(VitnasError, match='there is no image none.png'):
        show_vqa.main(['none.png', QUESTIONS[0], *arguments])
    with pytest.raises(VitnasError, match="knows no word of the question 'xylophone'"):
        show_vqa.main([image, QUESTIONS[0], 'xylophone', *arguments])
    cfg = Config.fromfile(config)
    cfg.model.update(backbone=None, neck=None)
    cfg.dump('blind.py')
    torch.save(build(cfg).state_dict(), 'blind.pth')
    with pytest.raises(VitnasError, match='it answers without looking at the image'):
        show_vqa.main([image, QUESTIONS[0], '--config', 'blind.py', '--checkpoint', 'blind.pth'])
    assert not Path('seen.png').exists() and not Path('vqa.png').exists()
