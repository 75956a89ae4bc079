"""The truth, rankings against it, and the statistics of a study."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from scipy import stats

from projects.studies import score
from projects.studies.studylib.plan import ROOT, StudyError
from projects.studies.studylib.scoring import Supernet, compare, rank
from projects.studies.studylib.statistics import paired_difference, score_ranking, summarize
from projects.studies.studylib.truth import TrueArch, Truth, choose_archs
from projects.studies.truth import make_price, read_model, recipe_digest
from tests.families import BACKBONES, FAMILIES
from tools.dataset_converters import fashion_mnist
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer
from vitnas_core.errors import DatasetError, VitnasError
from vitnas_core.evaluation import Job
from vitnas_core.registry import DATASETS
from vitnas_core.search import Candidate, Journal, read_candidates
from vitnas_core.spaces import SearchSpace

SPACE = dict(
    family='autoformer',
    stages=[dict(embed_dim=[16, 24, 32], depth=[1, 2], block=dict(num_heads=[1, 2], mlp_ratio=[1, 2]))],
)


def price(arch):
    return AutoFormer.cost(arch, 32, 10, img_size=32, patch_size=8, reach=4)


def test_summary_by_hand() -> None:
    found = summarize([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.sd) == (3, 2.0, 1.0)
    assert found.high - found.mean == pytest.approx(4.302652729911275 / math.sqrt(3))
    one = summarize([5.0])
    assert (one.n, one.mean) == (1, 5.0) and math.isnan(one.sd) and math.isnan(one.half)
    assert summarize([]).n == 0


def test_paired_difference_is_the_paired_t_test(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=5), rng.normal(size=5)
    found = paired_difference(dict(enumerate(a)) | {9: 100.0}, dict(enumerate(b)) | {8: -100.0})
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.n == 5  # seeds that only one of them has do not count
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_ranking_on_known_lists() -> None:
    found = score_ranking([1, 2, 3, 4], [1, 3, 2, 4])
    assert found == pytest.approx(dict(pearson=0.8, spearman=0.8, kendall=4 / 6))  # 5 pairs agree, 1 does not
    assert score_ranking([1, 2, 3], [30, 20, 10]) == pytest.approx(dict(pearson=-1, spearman=-1, kendall=-1))
    assert score_ranking([1, 2, 3, 4], [1, 1, 2, 2])['kendall'] == pytest.approx(4 / math.sqrt(6 * 4))  # tau-b
    assert all(math.isnan(value) for value in score_ranking([1, 2], [3, 3]).values())
    with pytest.raises(StudyError, match='one length of at least 2, but got 3 and 2'):
        score_ranking([1, 2, 3], [1, 2])
    with pytest.raises(StudyError, match='finite'):
        score_ranking([1, math.nan], [1, 2])


def test_truth_file(tmp_path: Path) -> None:
    space = SearchSpace.from_dict(SPACE)
    archs = tuple(TrueArch(a, 5, 6, {0: 80.5, 1: 81.5}) for a in (space.smallest(), space.largest()))
    truth = Truth('abc', 'accuracy/top1', archs)
    truth.save(tmp_path / 'truth.json')
    assert Truth.from_file(tmp_path / 'truth.json') == truth
    assert truth.scores == [81.0, 81.0]
    text = (tmp_path / 'truth.json').read_text()
    for damaged, words in (
        (text[:-20], 'JSONDecodeError'),
        (text.replace('num_heads', 'num_head', 1).replace('"macs": 5', '"mac": 5'), 'macs'),
        (text.replace('80.5', 'NaN', 1), 'scores should be finite'),
    ):
        (tmp_path / 'truth.json').write_text(damaged)
        with pytest.raises(StudyError, match=words):
            Truth.from_file(tmp_path / 'truth.json')
    with pytest.raises(StudyError, match='there is no truth file'):
        Truth.from_file(tmp_path / 'nope.json')


@pytest.mark.parametrize('num', [2, 8, 20])
def test_archs_are_spread_over_costs(num: int, rng: np.random.Generator) -> None:
    space = SearchSpace.from_dict(SPACE)
    archs = choose_archs(space, price, num, rng)
    assert len(set(archs)) == num and archs[0] == space.smallest() and archs[-1] == space.largest()
    macs = [math.log(price(arch).macs) for arch in archs]
    assert macs == sorted(macs)
    assert max(np.diff(macs)) <= 4 * (macs[-1] - macs[0]) / (num - 1)
    with pytest.raises(StudyError, match=f'from 2 to {space.size()}'):
        choose_archs(space, price, 1, rng)


def test_a_recipe_is_named_without_its_architecture() -> None:
    config = search_config()
    other = search_config()
    other.merge_from_dict({'randomness': dict(seed=5), 'model.backbone.space.stages': []})
    assert recipe_digest(other) == recipe_digest(config)
    other.train_dataloader.batch_size = 33
    assert recipe_digest(other) != recipe_digest(config)
    assert read_model(config, 'autoformer-tiny')['backbone']['space']['name'] == 'autoformer-tiny'
    del config.model.backbone['space']
    with pytest.raises(StudyError, match='has no space; give one by --space'):
        read_model(config, None)


@pytest.mark.parametrize('name', BACKBONES)
def test_costs_of_a_recipe_are_those_of_its_images(name: str) -> None:
    """Whatever its family, also one without ``img_size``."""
    family, config = FAMILIES[name], search_config()
    config.model.backbone = dict(type=family.cls, space=family.space.to_dict(), **family.settings)
    pipeline = [dict(type='Resize', scale=family.image), dict(type='PackInputs')]
    config.train_dataloader.dataset.dataset.pipeline = pipeline
    model = read_model(config, None)
    backbone, arch = family.elastic(), family.space.smallest()
    assert make_price(config, model, backbone)(arch) == backbone.price(arch, family.image, 10)
    with pytest.raises(VitnasError, match='`input_size` is 9, but the pipeline of its images makes them'):
        make_price(config, model, backbone, 9)(arch)


def search_config() -> Config:
    data = dict(type='vitnas.Digits', split='train', pipeline=[dict(type='PackInputs')], indices=200)
    backbone = dict(type='vitnas.AutoFormer', space=SPACE, img_size=8, patch_size=2, reach=4, out_type='avg_featmap')
    return Config(
        dict(
            default_scope='mmpretrain',
            data_preprocessor=dict(mean=[77.6] * 3, std=[95.9] * 3),
            model=dict(
                type='ImageClassifier',
                backbone=backbone,
                head=dict(type='LinearClsHead', num_classes=10, in_channels='auto'),
            ),
            train_cfg=dict(evaluator=dict(type='Accuracy', topk=(1,)), input_size=8, num_classes=10),
            train_dataloader=dict(
                batch_size=32,
                num_workers=0,
                dataset=dict(type='vitnas.HoldOut', part='holdout', per_class=5, dataset=data),
            ),
            test_dataloader=dict(
                batch_size=50,
                num_workers=0,
                dataset=dict(type='vitnas.Digits', split='test', pipeline=data['pipeline']),
            ),
        )
    )


def test_a_supernet_is_scored(tmp_path: Path, rng: np.random.Generator) -> None:
    config = search_config()
    from mmpretrain.registry import MODELS

    from vitnas_core.auto import fill_auto

    model = MODELS.build(fill_auto(config.model))
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'net.pth')
    supernet = Supernet(config, tmp_path / 'net.pth')
    scorer = supernet.scorer(config.train_dataloader)
    archs = choose_archs(supernet.space, supernet.price, 6, rng)
    own = [scorer.score(Job(arch)).value for arch in archs]
    truth = Truth('', '', tuple(TrueArch(a, i + 1, 1, {0: s + i * 1e-3}) for i, (a, s) in enumerate(zip(archs, own))))
    measures, scores = rank(supernet, truth)
    assert scores == own and measures['num'] == 6 and measures['pearson'] > 0.99
    assert measures['macs_kendall'] == pytest.approx(score_ranking(truth.scores, range(6))['kendall'])
    found = compare(supernet, archs[3], 3, rng)
    assert found['searched_random'] == pytest.approx(found['searched'] - found['random'])
    assert found['searched_macs'] == supernet.price(archs[3]).macs < found['largest_macs']
    for arch in supernet.draw(found['searched_macs'], 3, rng):
        assert abs(supernet.price(arch).macs / found['searched_macs'] - 1) <= 0.05

    config.dump(tmp_path / 'search.py')
    (tmp_path / 'arch.json').write_text(archs[3].to_json())
    files = [str(tmp_path / name) for name in ('search.py', 'net.pth', 'arch.json')]
    score.main(['draw', *files, '--out', str(tmp_path / 'drawn'), '--seed', '1'])
    drawn, largest = (zoo.load_arch(tmp_path / f'drawn/{name}.json') for name in ('random', 'largest'))
    measures = json.loads((tmp_path / 'drawn/measures.json').read_text())
    assert drawn in supernet.space and largest == supernet.space.largest()
    assert measures['random_macs'] == supernet.price(drawn).macs
    assert abs(measures['random_macs'] / measures['searched_macs'] - 1) <= 0.05


def test_the_best_under_budgets_is_tested(tmp_path: Path, rng: np.random.Generator) -> None:
    from mmpretrain.registry import MODELS

    from vitnas_core.auto import fill_auto

    config = search_config()
    torch.save({'state_dict': MODELS.build(fill_auto(config.model)).state_dict()}, tmp_path / 'net.pth')
    supernet = Supernet(config, tmp_path / 'net.pth')
    archs = sorted(choose_archs(supernet.space, supernet.price, 6, rng), key=lambda a: supernet.price(a).macs)
    made = [Candidate(i, 0, a, dict(macs=supernet.price(a).macs), 50.0 - i, seconds=0.5) for i, a in enumerate(archs)]
    for part, name in ((made[:4], 'one'), (made[4:], 'two')):
        journal = Journal(tmp_path / name, {'any': 'search'})
        for candidate in reversed(part):
            journal.append(candidate)
    config.dump(tmp_path / 'config.py')
    budgets = [made[2].cost['macs'], made[5].cost['macs'] + 1]
    score.main(
        [
            'budgets',
            str(tmp_path / 'config.py'),
            str(tmp_path / 'net.pth'),
            str(tmp_path / 'one'),
            str(tmp_path / 'two'),
        ]
        + ['--out', str(tmp_path / 'out'), '--budgets', *map(str, budgets)]
    )
    found = json.loads((tmp_path / 'out' / 'measures.json').read_text())
    assert (found['evaluations'], found['search_seconds']) == (6, 3.0)
    tested = supernet.scorer(config.test_dataloader).score(Job(archs[0])).value  # the smallest has the highest score
    assert found['accuracy_1'] == found['accuracy_2'] == pytest.approx(tested)
    assert found['holdout_1'] == 50.0 and found['macs_1'] == made[0].cost['macs']
    with pytest.raises(SystemExit, match='none of the 4 candidates has at most 1 MACs'):
        score.main(
            ['budgets', str(tmp_path / 'config.py'), str(tmp_path / 'net.pth'), str(tmp_path / 'one')]
            + ['--out', str(tmp_path / 'out'), '--budgets', '1']
        )
    with pytest.raises(VitnasError, match='there is no history of a search'):
        read_candidates(tmp_path / 'three' / 'history.jsonl')


@pytest.fixture
def small_fashion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as of Fashion-MNIST with 40 training and 20 test images; every test image is brighter."""
    headers = {}
    for part, count, grey in (('train', 40, 10), ('t10k', 20, 200)):
        headers[f'{part}-images-idx3-ubyte'] = (0x803, count, 28, 28)
        headers[f'{part}-labels-idx1-ubyte'] = (0x801, count)
        images = bytes(grey + i % 40 for i in range(count) for _ in range(784))
        labels = bytes(i % 10 for i in range(count))
        for name, data in ((f'{part}-images-idx3-ubyte', images), (f'{part}-labels-idx1-ubyte', labels)):
            start = b''.join(number.to_bytes(4, 'big') for number in headers[name])
            (tmp_path / f'{name}.gz').write_bytes(gzip.compress(start + data))
    monkeypatch.setattr(fashion_mnist, 'HEADERS', headers)
    return tmp_path


def test_fashion_mnist_is_split_three_ways(small_fashion: Path) -> None:
    fashion_mnist.main([str(small_fashion), '--out', str(small_fashion / 'out')])
    config = Config.fromfile(ROOT / 'configs/_base_/datasets/fashion_mnist.py')
    parts = {}
    for part in ('train', 'holdout', 'test'):
        dataset = config[f'{part}_dataloader'].dataset
        (dataset if part == 'test' else dataset.dataset).data_root = str(small_fashion / 'out')
        if part != 'test':
            dataset.per_class = 1
        dataset = {**dataset, 'type': dataset.type if part != 'test' else 'mmpretrain.FashionMNIST'}
        if part != 'test':
            dataset['dataset'] = {**dataset['dataset'], 'type': 'mmpretrain.FashionMNIST'}
        inner = dataset if part == 'test' else dataset['dataset']
        inner['pipeline'] = [{**step, 'type': f'mmpretrain.{step["type"]}'} for step in inner['pipeline']]
        built = DATASETS.build(dataset)
        parts[part] = [int(built[i]['inputs'][0, 0, 0]) for i in range(len(built))]
        assert built[0]['inputs'].shape == (1, 28, 28)
    assert [len(parts[part]) for part in ('train', 'holdout', 'test')] == [30, 10, 20]
    assert sorted(parts['train'] + parts['holdout']) == list(range(10, 50))  # disjoint, together the whole
    assert min(parts['test']) >= 200


def test_a_wrong_file_is_refused(small_fashion: Path) -> None:
    name = small_fashion / 't10k-labels-idx1-ubyte.gz'
    name.write_bytes(name.read_bytes()[:-9])
    with pytest.raises(DatasetError, match='is not a complete gzip file'):
        fashion_mnist.unpack(small_fashion, small_fashion / 'out')
    name.write_bytes(gzip.compress(b'other'))
    with pytest.raises(DatasetError, match='should hold 28 bytes'):
        fashion_mnist.unpack(small_fashion, small_fashion / 'out')
    name.unlink()
    with pytest.raises(DatasetError, match='there is no file .*dataset-fashion-mnist'):
        fashion_mnist.unpack(small_fashion, small_fashion / 'out')
