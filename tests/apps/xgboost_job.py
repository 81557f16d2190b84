"""XGBoost: trees grown, sorted, sampled and asked on the GPU, by the PTX in its own wheel (thrust and CUB's algorithms)."""
import numpy as np
import xgboost

random = np.random.default_rng(1)
rows = random.random((2000, 6), dtype=np.float32)
wanted = rows[:, 0] * 3 + rows[:, 1] * rows[:, 2]


def trained(device, data, **options):
    return xgboost.train({"device": device, "max_depth": 4, "max_bin": 64, "seed": 1, **options}, data, 10)


# Cut into bins on one side, the trees are to be the same, but for the order of additions.
bins = xgboost.QuantileDMatrix(rows, wanted, max_bin=64)
here, there = (trained(device, bins).predict(xgboost.DMatrix(rows)) for device in ("cpu", "cuda"))
np.testing.assert_allclose(there, here, atol=1e-4)

# Cut on the GPU: each of 64 bins has as many rows as any other.
there = trained("cuda", data := xgboost.DMatrix(rows, wanted))
assert np.abs(there.predict(data) - wanted).mean() < 0.1
contributions = there.predict(data, pred_contribs=True)
np.testing.assert_allclose(contributions.sum(axis=1), there.predict(data), atol=1e-3)

for options in ({"subsample": 0.5, "sampling_method": "gradient_based"}, {"grow_policy": "lossguide", "max_leaves": 10},
                {"objective": "reg:absoluteerror"}):
    off = np.abs(trained("cuda", data, **options).predict(data) - wanted).mean()
    assert off < 0.15, (options, off)

classes = xgboost.DMatrix(rows, (wanted > 1.5).astype(int) + (wanted > 2.5))
results = {}
xgboost.train({"device": "cuda", "objective": "multi:softprob", "num_class": 3, "eval_metric": ["merror", "auc"]}, classes, 4,
              evals=[(classes, "train")], evals_result=results, verbose_eval=False)
assert results["train"]["merror"][-1] < 0.05 and results["train"]["auc"][-1] > 0.99, results

ranked = xgboost.DMatrix(rows, np.round(wanted).astype(int))
ranked.set_group([100] * 20)
xgboost.train({"device": "cuda", "objective": "rank:ndcg"}, ranked, 4, evals=[(ranked, "train")], evals_result=results,
              verbose_eval=False)
ndcg = results["train"]["ndcg@32"]
assert ndcg[-1] > max(ndcg[0], 0.9), results
print("xgboost: as on the processor")
