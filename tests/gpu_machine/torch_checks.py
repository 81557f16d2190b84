#!/usr/bin/env python3
"""What PyTorch does on a GPU, in some forty short checks. For test-gpu, which runs them by themselves and remoted: the bits
must be the same.

    torch_checks.py                   prints a line of JSON for each: {"check": NAME, "result": a digest of the bits}
    torch_checks.py --device cpu      tries this script where there is no GPU, as far as that goes

One that fails has "error" in place of "result". Exit status 77: PyTorch is not there, or finds no GPU.
"""
import argparse
import ctypes
import io
import tempfile

from checks import Checks

check = Checks("torch_checks")


def on_gpu_only(function):
    function.on_gpu_only = True
    return check(function)


def bytes_of(value):
    if not torch.is_tensor(value):
        return None
    value = value.detach().cpu().contiguous()
    return ctypes.string_at(value.data_ptr(), value.nbytes)


def numbers(*shape, dtype=None, seed=1):
    """The same on every device."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype or torch.float32).to(device)


@check
def elementwise():
    x = numbers(100_000)
    return torch.tanh(x) * 2 + torch.exp(-x * x) - torch.where(x > 0, x.sqrt(), x.abs().log1p())


@check
def broadcasts_and_strides():
    x = numbers(37, 1, 41)
    return (x + numbers(29, 1, seed=2)).transpose(0, 2)[::3, :, 1::2] * 3


@check
def reductions():
    x = numbers(1000, 129)
    return [x.sum(), x.mean(0), x.var(1), x.amax(0), x.argmin(1), x.norm(dim=1), x.logsumexp(1), (x > 0).all(1)]


@check
def scans():
    x = numbers(64, 1000)
    return [x.cumsum(1), x.cummax(1)[0], (x * 0.1).exp().cumprod(0), x.logcumsumexp(1)]


@check
def sorts():
    x = numbers(50, 3000)
    return [*x.sort(1), *x.topk(17, 1), *x.kthvalue(5, 1), x.median(), (x * 4).round().unique()]


@check
def picks():
    x = numbers(500, 64)
    where = torch.arange(0, 500, 3, device=device)
    return [x[where], x.gather(1, (x * 7).long().remainder(64)), x[x > 1], x.nonzero(), torch.index_select(x, 1, where[:20] % 64)]


@check
def places():
    x, where = numbers(300, 16), torch.randperm(300, generator=torch.Generator().manual_seed(3)).to(device)
    return [torch.zeros_like(x).index_copy_(0, where, x), torch.zeros_like(x).scatter_(0, where[:, None].expand(-1, 16), x)]


@check
def counts():
    x = (numbers(10_000).abs() * 10).long()
    return [torch.bincount(x), torch.histc(numbers(10_000), 50, -3, 3), torch.searchsorted(torch.arange(5, device=device), x)]


@check
def products_of_every_type():
    found = []
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        found += [numbers(130, 70, dtype=dtype) @ numbers(70, 90, dtype=dtype, seed=2)]
    return found


@on_gpu_only
def products_with_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return numbers(256, 256) @ numbers(256, 256, seed=2)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@on_gpu_only
def products_in_8_bits():
    if torch.cuda.get_device_capability() < (8, 9):
        return "no 8-bit floats"
    left = numbers(64, 128).to(torch.float8_e4m3fn)
    right = numbers(32, 128, seed=2).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)
    whole = torch.randint(-9, 9, (64, 64), generator=torch.Generator().manual_seed(4)).to(torch.int8).to(device)
    return [torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16), torch._int_mm(whole, whole)]


@check
def batches_of_products():
    return [torch.bmm(numbers(20, 30, 40), numbers(20, 40, 10, seed=2)),
            torch.einsum("bij,bkj->bik", numbers(5, 6, 7), numbers(5, 8, 7, seed=2)),
            torch.baddbmm(numbers(20, 30, 10), numbers(20, 30, 40), numbers(20, 40, 10))]


@check
def complex_numbers():
    x = torch.complex(numbers(64, 64), numbers(64, 64, seed=2))
    return [x @ x, x.abs(), x.angle(), x.conj() * x]


@check
def convolutions():
    functions, x = torch.nn.functional, numbers(4, 8, 32, 32)
    return [functions.conv2d(x, numbers(16, 8, 3, 3, seed=2), padding=1), functions.conv2d(x, numbers(8, 1, 5, 5, seed=3), groups=8),
            functions.conv_transpose2d(x, numbers(8, 4, 4, 4, seed=4), stride=2),
            functions.conv1d(numbers(2, 3, 100), numbers(5, 3, 7, seed=5), dilation=2),
            functions.conv3d(numbers(1, 2, 9, 9, 9), numbers(3, 2, 3, 3, 3, seed=6))]


@check
def gradients_of_a_convolution():
    x, weight = numbers(2, 4, 20, 20).requires_grad_(), numbers(6, 4, 3, 3, seed=2).requires_grad_()
    torch.nn.functional.conv2d(x, weight, stride=2).square().sum().backward()
    return [x.grad, weight.grad]


@check
def pools_and_upsampling():
    functions, x = torch.nn.functional, numbers(2, 3, 32, 32)
    return [functions.max_pool2d(x, 3, 2), functions.avg_pool2d(x, 2), functions.adaptive_avg_pool2d(x, 5),
            functions.interpolate(x, scale_factor=2, mode="bilinear"), functions.interpolate(x, size=17),
            functions.grid_sample(x, numbers(2, 9, 9, 2, seed=2).clamp(-1, 1), align_corners=False)]


@check
def norms():
    functions, x = torch.nn.functional, numbers(8, 16, 10, 10)
    return [functions.batch_norm(x, torch.zeros(16, device=device), torch.ones(16, device=device), training=True),
            functions.layer_norm(x, x.shape[1:]), functions.group_norm(x, 4), functions.instance_norm(x),
            functions.rms_norm(x, (10,)), functions.normalize(x)]


@check
def losses():
    functions, x = torch.nn.functional, numbers(64, 10)
    which = torch.arange(64, device=device) % 10
    return [functions.cross_entropy(x, which), functions.mse_loss(x, x * 2), functions.nll_loss(x.log_softmax(1), which),
            functions.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"), functions.huber_loss(x, -x),
            functions.binary_cross_entropy_with_logits(x, (x > 0).float())]


@check
def ctc():
    chances = numbers(50, 4, 20).log_softmax(2)
    which = torch.randint(1, 20, (4, 30), generator=torch.Generator().manual_seed(7)).to(device)
    return torch.nn.functional.ctc_loss(chances, which, [50] * 4, [10, 20, 25, 15])


@check
def attention():
    attend, parts = torch.nn.functional.scaled_dot_product_attention, [numbers(2, 4, 128, 64, seed=n) for n in (1, 2, 3)]
    half = [part.half() for part in parts]
    return [attend(*parts), attend(*parts, is_causal=True), attend(*half), attend(*half, is_causal=True)]


@check
def a_recurrent_network():
    torch.manual_seed(2)
    found = []
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        network = kind(16, 32, num_layers=2, bidirectional=True).to(device)
        found.append(network(numbers(20, 4, 16))[0])
    return found


@check
def embeddings():
    table, which = numbers(100, 24), torch.arange(60, device=device) * 7 % 100
    return [torch.nn.functional.embedding(which, table),
            torch.nn.functional.embedding_bag(which.view(6, 10), table, mode="mean")]


@check
def fourier_transforms():
    x = numbers(16, 1000)
    return [torch.fft.rfft(x), torch.fft.fft2(numbers(8, 30, 42)), torch.fft.irfft(torch.fft.rfft(x), n=1000),
            torch.stft(x, 128, window=torch.hann_window(128, device=device), return_complex=True)]


@check
def linear_systems():
    x = numbers(5, 40, 40, dtype=torch.float64)
    positive = x @ x.transpose(1, 2) + 40 * torch.eye(40, dtype=torch.float64, device=device)
    return [torch.linalg.cholesky(positive), torch.linalg.solve(x, x.transpose(1, 2)), torch.linalg.inv(positive),
            torch.linalg.det(positive), torch.linalg.lu_factor(x)[0], torch.linalg.lstsq(x, x)[0]]


@check
def decompositions():
    x = numbers(30, 30, dtype=torch.float64)
    return [torch.linalg.svdvals(x), torch.linalg.eigvalsh(x + x.t()), torch.linalg.qr(x)[1].abs(), torch.linalg.matrix_exp(x * 0.1)]


@check
def sparse_matrices():
    dense = numbers(80, 80) * (numbers(80, 80, seed=2) > 1)
    rows = dense.to_sparse_csr()
    return [rows @ numbers(80, 12), dense.to_sparse() @ numbers(80, 5), (dense.to_sparse() + dense.to_sparse()).to_dense()]


@on_gpu_only
def random_numbers():
    torch.cuda.manual_seed(11)
    state = torch.cuda.get_rng_state()
    return [torch.rand(1000, device=device), torch.randn(1000, device=device), torch.randperm(1000, device=device),
            torch.bernoulli(torch.full((500,), 0.3, device=device)), torch.multinomial(torch.ones(50, device=device), 20),
            torch.nn.functional.dropout(torch.ones(500, device=device)), state]


@check
def training():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.GELU(), torch.nn.Linear(64, 3)).to(device)
    found = []
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
        optimizer = kind(model.parameters(), lr=1e-2)
        for step in range(5):
            optimizer.zero_grad()
            loss = model(numbers(32, 20, seed=step)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        found.append(loss)
    return [*found, *model.parameters()]


@on_gpu_only
def training_in_half_precision():
    torch.manual_seed(6)
    model, scaler = torch.nn.Linear(64, 64).to(device), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(numbers(32, 64, seed=step)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [loss, model.weight]


@check
def a_transformer():
    torch.manual_seed(7)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    out = model(numbers(4, 32, 64))
    out.square().mean().backward()
    return [out, layer.linear1.weight, next(model.parameters()).grad]


@check
def derivatives_of_functions():
    from torch.func import hessian, jacrev, vmap
    return [jacrev(torch.sin)(numbers(20)), hessian(lambda x: (x**3).sum())(numbers(10)), vmap(torch.dot)(numbers(9, 8), numbers(9, 8))]


@on_gpu_only
def streams_and_events():
    one, other, done = torch.cuda.Stream(), torch.cuda.Stream(priority=-1), torch.cuda.Event(enable_timing=True)
    begun = torch.cuda.Event(enable_timing=True)
    x = numbers(1_000_000)
    one.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(one):
        begun.record()
        for _ in range(20):
            x = x * 1.01
        done.record()
    other.wait_event(done)
    with torch.cuda.stream(other):
        x = x + 1
    torch.cuda.synchronize()
    return [x, begun.elapsed_time(done) > 0, done.query()]


@on_gpu_only
def a_graph():
    static = torch.zeros(1000, device=device)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        static * 2
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static * 2).sin() + static.sum()
    found = []
    for step in range(4):
        static.copy_(numbers(1000, seed=step))
        graph.replay()
        found.append(out.clone())
    return found


@on_gpu_only
def pinned_copies_in_turn():
    host, found = torch.arange(1 << 20, dtype=torch.float32).pin_memory(), []
    for step in range(4):
        there = host.to(device, non_blocking=True)
        back = torch.empty(1 << 20, pin_memory=True)
        back.copy_(there * step, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        found.append(back)
    return found


@on_gpu_only
def memory_is_counted():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = torch.zeros(1 << 24, device=device)
    during, peak = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
    del block
    free, total = torch.cuda.mem_get_info()
    return [during, peak, torch.cuda.memory_allocated() - before, 0 < free <= total]


@on_gpu_only
def too_much_memory():
    try:
        torch.zeros(1 << 50, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        return torch.ones(3, device=device) + 1
    raise AssertionError("a pebibyte was to be had")


@check
def a_file():
    x, file = numbers(300), io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    return torch.load(file, map_location=device)["x"]


@on_gpu_only
def other_code_reads_it():
    x = numbers(100)
    return [torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2)),
            x.__cuda_array_interface__["shape"]]


@on_gpu_only
def a_compiled_kernel():
    return torch.cuda._compile_kernel("""
        extern "C" __global__ void scale(float* x, float by, int count) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < count) x[i] *= by;
        }""", "scale") and "compiled"


@on_gpu_only
def compiled_by_inductor():
    @torch.compile
    def f(x, y):
        return torch.nn.functional.gelu(x @ y).softmax(1).sum(0)
    x = numbers(64, 64).requires_grad_()
    out = f(x, numbers(64, 64, seed=2))
    out.sum().backward()
    return [out, x.grad]


@on_gpu_only
def one_rank_of_nccl():
    import torch.distributed as distributed
    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        try:
            x, parts = numbers(1000), [torch.empty(1000, device=device)]
            distributed.all_reduce(x)
            distributed.all_gather(parts, x)
            distributed.broadcast(x, 0)
            torch.cuda.synchronize()
            return [x, *parts]
        finally:
            distributed.destroy_process_group()


@on_gpu_only
def profiling_changes_nothing():
    """Kernels are in a profile only where CUPTI works, which it does not remoted."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        total = (numbers(100) * 2).sum()
    return [total, len(found.events()) > 0]


def main():
    global torch, device
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    try:
        import torch
    except ImportError:
        check.lacks("PyTorch is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        check.lacks("PyTorch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    check.run(bytes_of, lambda function: device == "cuda" or not hasattr(function, "on_gpu_only"))


if __name__ == "__main__":
    main()
