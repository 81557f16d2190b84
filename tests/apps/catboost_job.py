"""CatBoost: takes nearly all of the GPU's memory at once, has its kernels write to pinned memory that nobody mapped, and
several threads of the host that each drive the GPU."""
import catboost
import numpy as np
from catboost.utils import get_gpu_device_count

assert get_gpu_device_count() == 1
random = np.random.default_rng(1)
rows = random.random((1000, 5))
wanted = rows[:, 0] * 3 + rows[:, 1] * rows[:, 2]


def off(kind, **options):
    model = catboost.CatBoostRegressor(task_type=kind, iterations=30, depth=4, random_seed=1, verbose=False,
                                       allow_writing_files=False, **options)
    return np.abs(model.fit(rows, wanted).predict(rows) - wanted).mean()


here, there = off("CPU"), off("GPU", devices="0")
assert there < 1.5 * here + 0.02, (here, there)

model = catboost.CatBoostClassifier(task_type="GPU", devices="0", iterations=30, depth=4, verbose=False,
                                    allow_writing_files=False)
labels = (wanted > 1.7).astype(int)
kinds = (rows[:, 2] * 4).astype(int).astype(str)
table = np.column_stack([rows[:, :2].astype(object), kinds])  # with a column of names, which are counted on the GPU
accuracy = (model.fit(table, labels, cat_features=[2]).predict(table).astype(int) == labels).mean()
assert accuracy > 0.95, accuracy
print("catboost: errors", here, there, "accuracy", accuracy)
