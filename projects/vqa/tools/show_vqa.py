"""Ask a VQA model about an image and show its attention: ``show_vqa.py IMAGE QUESTION… --out FILE``.

The tool draws one row per question: the likeliest answers, then the image under the attention of the question's first
token, one picture per fusion layer. The default model is the one for scenes of digits; train it first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mmengine.registry import MODELS, init_default_scope

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from projects.vqa.vqa import VQAModel
from projects.vqa.vqa.attention import Look, look, read_image
from projects.vqa.vqa.visualization import draw_looks
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import VitnasError
from vitnas_core.visualization import save_png

CONFIG = 'projects/vqa/configs/digits/s3-micro_8e_scenes.py'
CHECKPOINT = 'work_dirs/s3-micro_8e_scenes/epoch_8.pth'


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('image', type=Path, help='image file')
    parser.add_argument('questions', nargs='+', metavar='question', help='one question or several')
    parser.add_argument('--config', default=CONFIG, help=f'config of the model; defaults to {CONFIG}')
    parser.add_argument('--checkpoint', default=CHECKPOINT, help=f'its weights; defaults to {CHECKPOINT}')
    parser.add_argument('--out', type=Path, default=Path('vqa.png'), help='the picture; defaults to vqa.png')
    parser.set_defaults(launcher='none', work_dir=None, cfg_options={})
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> list[Look]:
    """Print the answers and write the picture; return answers and attention."""
    options = parse_args(args)
    image = read_image(options.image)
    cfg = read_config(options)
    init_default_scope(cfg.get('default_scope'))
    model = MODELS.build(cfg.model)
    if not isinstance(model, VQAModel):
        raise VitnasError(f'{options.config} should have a vitnas.VQAModel, but has a {type(model).__name__}')
    load_weights(model, options.checkpoint)
    looks = [
        look(model, cfg.test_dataloader.dataset.pipeline, options.image, question) for question in options.questions
    ]
    for one in looks:
        print(f'{one.question} {", ".join(f"{answer} ({100 * score:.0f} %)" for answer, score in one.answers)}')
    save_png(draw_looks(image, looks), options.out)
    print(f'Picture: {options.out}')
    return looks


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
