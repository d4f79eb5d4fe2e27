"""A graph's missing facts from recipe to answers: trained, resumed, evaluated, loaded, asked."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import zoo
from zoo import artifact
from zoo.datasets import kg
from zoo.errors import DataError, RequestError, StoppedError, WeightsError
from zoo.recipes.config import load_config
from zoo.recipes.link import LinkTask, open_knowledge
from zoo.recipes.run import run

NAME = "nbfnet-fb15k237-v1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("link") / "run"
    result = zoo.run(NAME, "train.tracking=false", preset="smoke", folder=folder)
    return folder, result


def config(*overrides):
    return load_config(NAME, preset="smoke", overrides=["train.tracking=false", *overrides])


def test_a_run(trained):
    folder, result = trained
    assert result["selected_by"] == "mrr" and set(result["metrics"]) == {"valid", "test"}
    for metrics in result["metrics"].values():
        assert 0 < metrics["mrr_pessimistic"] <= metrics["mrr"] <= metrics["mrr_optimistic"] <= 1
        assert metrics["hits@1"] <= metrics["hits@3"] <= metrics["hits@10"]
    assert {p.name for p in (folder / "plots").iterdir()} >= {"ranks.png", "relations.png"}


def test_training_helps():
    task = LinkTask(config=config(), data=open_knowledge(config()))
    before = task.evaluate(task.module, "valid")["mrr"]
    optimiser = torch.optim.Adam(task.module.parameters(), lr=5e-3)
    for _ in range(3):
        task.module.train()
        for batch in task.train_loader:
            summed, count = task.loss(task.module, batch)
            optimiser.zero_grad()
            (summed / count).backward()
            optimiser.step()
    assert task.evaluate(task.module, "valid")["mrr"] > before + 0.1


def test_ranks_are_those_of_all_scores():
    """Against a ranking by hand, on the graph of the test split, in both directions."""
    task = LinkTask(config=config(), data=open_knowledge(config()))
    graph, relations = task.data.test_graph, len(task.data.relations)
    _, ranks = task.predictions(task.module, "test")
    facts = task.data.asked["test"]
    known = {tuple(row) for row in graph.known.tolist()}
    pairs = np.array([(h, r) for h, r, _ in facts] + [(t, r + relations) for _, r, t in facts])
    scores = np.concatenate(list(task.all_scores(task.module, graph, [pairs])))
    asked = [((h, r, t), t, 2) for h, r, t in facts.tolist()]
    asked += [((h, r, t), h, 0) for h, r, t in facts.tolist()]
    for (fact, own, end), row, found in zip(asked, scores, ranks, strict=True):
        others = []
        for entity in range(len(graph.entities)):
            other = list(fact)
            other[end] = entity
            if tuple(other) not in known:
                others.append(entity)
        assert found[0] == 1 + (row[others] > row[own]).sum()
        assert found[1] == found[0] + (row[others] == row[own]).sum()


def test_padding_adds_nothing():
    task = LinkTask(config=config(), data=open_knowledge(config()))
    module = task.module.double()
    batch = task.train_loader.example()
    whole = {**batch, "graphs_mask": torch.ones(8, dtype=torch.bool)}
    part = {**whole, "graphs_mask": torch.arange(8) < 5}
    for name in ("head", "relation"):
        part[name] = torch.cat([whole[name][:5], whole[name].flip(0)[:3]])
    summed, count = task.loss(module, part)
    less = {k: v[:5] if k in ("head", "relation", "tails") else v for k, v in whole.items()}
    less["graphs_mask"] = torch.ones(5, dtype=torch.bool)
    alone, fewer = task.loss(module, less)
    assert count == fewer == 5
    torch.testing.assert_close(summed, alone)


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path):
    import os
    import signal

    whole = run(config=config(), folder=tmp_path / "whole")

    def stop(step):
        if step == 13:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError):
        run(config=config(), folder=tmp_path / "part", after_step=stop)
    again = run(config=config(), folder=tmp_path / "part", resume=True)
    assert again["metrics"] == whole["metrics"]
    one, other = (
        artifact.read_weights(tmp_path / name / artifact.MODEL)[1] for name in ("whole", "part")
    )
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_it_is_evaluated_again(trained):
    folder, result = trained
    found = zoo.evaluate(folder)
    assert found["metrics"]["test"] == pytest.approx(result["metrics"]["test"])


def test_answers(trained):
    folder, _ = trained
    model = zoo.load(folder)
    assert "3 relations" in repr(model)
    graph = model.graph
    head, relation, tail = graph.facts[0]
    names = graph.entities[head], model.relations[relation], graph.entities[tail]
    found = model.predict(
        pd.DataFrame(
            {"head": [names[0], None], "relation": [names[1]] * 2, "tail": [None, names[2]]}
        ),
        k=len(graph.entities),
    )
    assert len(found) == 2 * len(graph.entities)
    for (_, rows), missing, wanted in zip(
        found.groupby(found.index // len(graph.entities)),
        ("tail", "head"),
        (names[2], names[0]),
        strict=True,
    ):
        assert rows["score"].is_monotonic_decreasing and rows["rank"].iloc[0] == 1
        assert sorted(rows[missing]) == sorted(graph.entities)
        assert rows.loc[rows[missing] == wanted, "known"].item()
    known = {tuple(row) for row in graph.known.tolist()}
    true = [graph.entities[t] for t in range(len(graph.entities)) if (head, relation, t) in known]
    assert set(found["tail"][: len(graph.entities)][found["known"][: len(graph.entities)]]) == set(
        true
    )


def test_answers_on_another_graph(trained, tmp_path):
    model = zoo.load(trained[0])
    facts = tmp_path / "facts.tsv"
    facts.write_text("u\tparent\tv\nv\tparent\tw\nx\tknows\tu\n")
    found = model.predict([("u", "grandparent", None)], k=4, facts=facts)
    assert sorted(found["tail"]) == ["u", "v", "w", "x"] and not found["known"].any()
    listed = [("u", "parent", "v"), ("v", "parent", "w"), ("x", "knows", "u")]
    assert model.predict([("u", "grandparent", None)], k=4, facts=listed).equals(found)
    with pytest.raises(DataError, match="relation 'likes'.*nearest"):
        model.predict([("u", "parent", None)], facts=[("u", "likes", "v")])


def test_queries_that_cannot_be_answered(trained):
    model = zoo.load(trained[0])
    entity = model.graph.entities[0]
    asked = [
        (entity, "parrent", None),
        ("nobody", "parent", None),
        (entity, "parent", entity),
        (None, None, entity),
        (entity, "parent", "?"),
    ]
    found = model.predict(asked, k=2)
    assert found["valid"].tolist() == [False] * 4 + [True] * 2
    reasons = found["reason"].tolist()
    assert "never saw (the nearest is 'parent')" in reasons[0]
    assert "'nobody' isn't in the graph" in reasons[1]
    assert "either a head or a tail" in reasons[2]
    assert len(model.predict(asked, k=2, on_error="skip")) == 2
    with pytest.raises(DataError, match="parrent"):
        model.predict(asked, on_error="raise")
    with pytest.raises(RequestError, match="head, a relation and a tail"):
        model.predict([(entity, "parent")])


def test_a_checkpoint_needs_a_graph(trained):
    model = zoo.load(trained[0] / "checkpoints" / "best")
    with pytest.raises(RequestError, match="no graph"):
        model.predict([("a", "parent", None)])
    assert len(model.predict([("a", "parent", None)], facts=[("a", "knows", "b")])) == 2


def test_the_command(trained, tmp_path, capsys):
    from typer.testing import CliRunner

    from zoo.cli import app

    entity = zoo.load(trained[0]).graph.entities[0]
    queries = tmp_path / "queries.tsv"
    queries.write_text(f"{entity}\tparent\t?\n?\tknows\tnobody\n")
    command = CliRunner()
    found = command.invoke(app, ["predict", str(trained[0]), str(queries), "-k", "3", "--json"])
    rows = json.loads(found.stdout)["predictions"]
    assert [row["rank"] for row in rows] == [1, 2, 3, None]
    shown = command.invoke(app, ["predict", str(trained[0]), str(queries)])
    assert "isn't in the graph" in shown.stdout
    out = tmp_path / "answers.csv"
    command.invoke(app, ["predict", str(trained[0]), str(queries), "-o", str(out)])
    assert len(pd.read_csv(out)) == 11


def test_data_that_do_not_go_with_the_weights(trained, tmp_path):
    with pytest.raises(RequestError, match="trained on another split"):
        zoo.evaluate(trained[0], "data.synthetic=100")


def test_weights_that_are_damaged(trained, tmp_path):
    spec, tensors = artifact.read_weights(trained[0] / artifact.MODEL)
    path = tmp_path / "model.safetensors"

    def written(tensors=tensors, **extra):
        changed = spec.model_copy(update={"extra": {**spec.extra, **extra}})
        artifact.write_weights(path=path, tensors=tensors, spec=changed)
        return path

    with pytest.raises(WeightsError, match="don't fit its entities"):
        zoo.load(written(entities=["one"]))
    with pytest.raises(WeightsError, match="directions"):
        zoo.load(written(relations=["one"]))
    fewer = {k: v for k, v in tensors.items() if k != "score.bias"}
    with pytest.raises(WeightsError, match="not those of the nbfnet"):
        zoo.load(written(tensors=fewer))


def test_more_relations_than_memory(tmp_path):
    for part, count in (("train", 100_000), ("valid", 1), ("test", 1)):
        lines = [f"a{i % 50}\tr{i}\tb{i % 7}\n" for i in range(count)]
        (tmp_path / f"{part}.txt").write_text("".join(lines))
    asked = load_config(NAME, overrides=[f"data.folder={tmp_path}"])
    with pytest.warns(UserWarning, match="train too"):
        data = open_knowledge(asked)
    with pytest.raises(RequestError, match="100,000 relations for 64 queries"):
        LinkTask(config=asked, data=data)
    with pytest.raises(RequestError, match=r"relations=5, and these facts need 6"):
        own = config("model.arguments.relations=5")
        LinkTask(config=own, data=open_knowledge(own))


def test_what_link_models_cannot_do(trained, tmp_path):
    with pytest.raises(RequestError, match="no export"):
        zoo.export(trained[0], format="pt2", out=tmp_path / "x.pt2")
    with pytest.raises(RequestError, match="no IPU folder"):
        zoo.export(NAME, format="ipu", out=tmp_path / "x")


def test_isolated_entities_are_ranked_too(tmp_path):
    """An entity that only a question names has no edge."""
    folder = tmp_path / "set"
    kg.synthesize(name="umls", path=folder, seed=0, size=60)
    with open(folder / "test.txt", "a", encoding="utf-8") as file:
        file.write("hermit\tknows\ta0\n")
    own = config(f"data.folder={folder}", "data.synthetic=0")
    task = LinkTask(config=own, data=open_knowledge(own))
    assert "hermit" in task.data.graph.entities
    assert np.isfinite(task.evaluate(task.module, "test")["mrr"])
