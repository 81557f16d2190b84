"""RAPIDS' cuDF and cuGraph, whose libraries bring PTX for what CUB and Thrust make of them: tables beside pandas, strings and
files, a function of the program's in a kernel, and the usual questions about a graph beside NetworkX."""
import io

import nvjitlink_as_ptx

LINKER = nvjitlink_as_ptx.load()
import cudf
import cugraph
import networkx
import numpy as np
import pandas as pd

ROWS = 4000
random = np.random.default_rng(1)
there = pd.DataFrame({"key": random.integers(0, 17, ROWS), "value": random.standard_normal(ROWS),
                      "count": random.integers(0, 1000, ROWS).astype("int32"),
                      "word": [f"w{number}é" for number in random.integers(0, 50, ROWS)]})
here = cudf.from_pandas(there)


def same(ask, sort_by=None):
    """`ask` is put to both tables."""
    expected, found = ask(there), ask(here).to_pandas()
    if sort_by:
        expected, found = (frame.sort_values(sort_by).reset_index(drop=True) for frame in (expected, found))
    compare = pd.testing.assert_frame_equal if isinstance(expected, pd.DataFrame) else pd.testing.assert_series_equal
    compare(found, expected, check_dtype=False)


same(lambda frame: frame.value + frame["count"] * 2)
same(lambda frame: frame.sort_values(["key", "value"]).reset_index(drop=True))
same(lambda frame: frame.groupby("key").agg({"value": ["sum", "std"], "count": ["min", "max", "median"]}).sort_index())
same(lambda frame: frame.groupby("word").value.count().sort_index())
same(lambda frame: frame.merge(frame[:100][["key", "count"]], on="key"), ["key", "value", "count_x", "count_y"])
same(lambda frame: frame.word.str.upper().str.slice(0, 2))
same(lambda frame: frame.word.str.contains(r"w[1-3]\d"))
same(lambda frame: frame.value.rolling(5).mean())
same(lambda frame: frame.apply(lambda row: row.value * row["count"] + 1, axis=1))
same(lambda frame: frame.pivot_table(index="key", columns="word", values="value", aggfunc="sum").sort_index())
same(lambda frame: frame.query("value > 0 and key == 3").reset_index(drop=True))

pd.testing.assert_frame_equal(cudf.read_csv(io.StringIO(there.to_csv(index=False))).to_pandas(), there, check_dtype=False)
packed, unpacked = io.BytesIO(), io.BytesIO()
there.to_parquet(packed)
here.to_parquet(unpacked)
packed.seek(0), unpacked.seek(0)
pd.testing.assert_frame_equal(cudf.read_parquet(packed).to_pandas(), there)
pd.testing.assert_frame_equal(pd.read_parquet(unpacked), there)

club = networkx.Graph(networkx.karate_club_graph().edges())
graph = cugraph.Graph()
graph.from_cudf_edgelist(cudf.DataFrame(list(club.edges()), columns=["from", "to"]), source="from", destination="to")


def close(found, column, expected):
    values = found.to_pandas().set_index("vertex")[column]
    np.testing.assert_allclose([values[node] for node in expected], list(expected.values()), atol=1e-5)


close(cugraph.pagerank(graph), "pagerank", networkx.pagerank(club))
close(cugraph.bfs(graph, 0), "distance", networkx.single_source_shortest_path_length(club, 0))
close(cugraph.betweenness_centrality(graph), "betweenness_centrality", networkx.betweenness_centrality(club))
close(cugraph.core_number(graph), "core_number", networkx.core_number(club))
close(cugraph.triangle_count(graph), "counts", networkx.triangles(club))
assert cugraph.connected_components(graph).labels.nunique() == 1
for groups, modularity in (cugraph.louvain(graph), cugraph.leiden(graph)):
    assert modularity > 0.4 and groups.partition.nunique() > 2
print("cuDF", cudf.__version__, "cuGraph", cugraph.__version__)
