"""Warp's own suite on the GPU only, from PTX: a plugin of suite.py."""
import tempfile

import warp as wp

wp.config.cuda_output = "ptx"
_cache = tempfile.TemporaryDirectory(prefix="tnr-warp-", ignore_cleanup_errors=True)
wp.config.kernel_cache_dir = _cache.name

from warp.tests import unittest_utils  # noqa: E402

unittest_utils.get_test_devices = lambda mode=None: wp.get_cuda_devices()
