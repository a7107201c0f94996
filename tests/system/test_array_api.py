"""The array API's namespace across processes, and a consumer written against the standard, on tensors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript


def test_another_process_goes_on_with_results_and_functions(run_script: RunScript, start_method: str) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def serve(inbox, outbox):
        root, parts, pieces = inbox.get()
        xp = parts.eigenvalues.__array_namespace__()
        parts.eigenvalues[...] = root(parts.eigenvalues)
        outbox.put((xp.sum(parts.eigenvectors ** 2, axis=0), xp.permute_dims(pieces[1], (1, 0))))

    if __name__ == "__main__":
        square = st.tensor([[2.0, 0.0], [0.0, 9.0]], dtype="float64")
        xp = square.__array_namespace__()
        base = st.zeros(6, 2, 2)
        parts, pieces = xp.linalg.eigh(square), xp.unstack(base, axis=2)
        inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
        child = mp.Process(target=serve, args=(inbox, outbox))
        child.start()
        inbox.put((xp.sqrt, parts, [pieces[0], pieces[1][:3]]))
        lengths, grid = outbox.get()
        child.join()
        assert np.allclose(parts.eigenvalues, np.sqrt([2, 9])) and np.allclose(lengths, [1, 1])
        grid[1, 2] = 5
        print(type(parts).__name__, grid.is_view(), base.numpy().sum())
    """
    # Views of views, made on both sides: what is written into the last is in the first.
    assert run_script(code, start_method=start_method).split() == ["EighResult", "True", "5.0"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn comes with the examples")
def test_scikit_learn_fits_and_predicts_on_tensors_as_on_arrays(run_script: RunScript) -> None:
    code = """
    import warnings
    import numpy as np
    import shmtensor as st
    from sklearn import config_context
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge
    from sklearn.metrics import accuracy_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    def learned(samples, targets, classes):
        regression = make_pipeline(MinMaxScaler(), PCA(3, svd_solver="full"), Ridge(solver="svd"))
        predicted = regression.fit(samples, targets).predict(samples)
        classifier = LinearDiscriminantAnalysis().fit(samples, classes)
        return predicted, classifier.predict_proba(samples), accuracy_score(classes, classifier.predict(samples))

    if __name__ == "__main__":
        draw = np.random.default_rng(3)
        samples = draw.normal(size=(200, 5))
        targets = samples @ [1.0, -2.0, 3.0, 0.0, 1.0] + 0.1 * draw.normal(size=200)
        given = (samples, targets, (targets > 0).astype("int64"))
        pool = st.Pool.create(limit=64 << 20)
        with config_context(array_api_dispatch=True):
            expected = learned(*given)
            ours = learned(*[st.from_numpy(each, pool=pool) for each in given])
        for one, other in zip(ours[:2], expected):
            assert isinstance(one, st.Tensor) and one.untyped_storage().block.pool is pool
            assert np.allclose(one.numpy(), other)
        assert ours[2] == expected[2] > 0.9
        print("alike")
    """
    assert run_script(code, env={"SCIPY_ARRAY_API": "1"}) == "alike\n"
