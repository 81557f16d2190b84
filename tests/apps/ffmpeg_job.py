"""The distribution's FFmpeg with its CUDA filters, which bring their PTX along, beside the same filters on the CPU. Its
decoders and encoders need libraries that are not remoted: that they say so, and no more, is looked at, too."""
import math
import subprocess

FRAMES, WIDTH, HEIGHT = 5, 160, 120
SOURCE = ["-f", "lavfi", "-i", f"testsrc=s={WIDTH}x{HEIGHT}"]
SMALL = ["-f", "lavfi", "-i", "mandelbrot=s=60x40"]


def ffmpeg(*arguments):
    return subprocess.run(["ffmpeg", "-hide_banner", "-nostats", "-v", "error", "-y", *arguments], capture_output=True)


def frames(inputs, filters, on_gpu):
    device = ["-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu"] if on_gpu else []
    done = ffmpeg(*device, *inputs, "-filter_complex", filters, "-frames:v", str(FRAMES), "-f", "rawvideo", "-")
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def both(inputs, on_gpu, on_cpu):
    """What the GPU makes of the source's frames and what the CPU makes of them: all bytes, of Y, U and V."""
    gpu, cpu = (frames(inputs, filters, where) for filters, where in ((on_gpu, True), (on_cpu, False)))
    assert len(gpu) == len(cpu) > 0, (on_gpu, len(gpu), len(cpu))
    return gpu, cpu


def one_input(gpu, cpu):
    return f"format=yuv420p,{gpu},hwdownload,format=yuv420p", f"format=yuv420p,{cpu}"


def same(what, gpu, cpu):
    assert gpu == cpu, f"{what}: {sum(a != b for a, b in zip(gpu, cpu))} of {len(cpu)} bytes differ"
    print(what, "same", flush=True)


def near(what, gpu, cpu, share, step):
    """The two are written by different people: few bytes differ, and not by much."""
    apart = [abs(a - b) for a, b in zip(gpu, cpu) if a != b]
    assert len(apart) <= share * len(cpu) and max(apart, default=0) <= step, (what, len(apart), len(cpu), max(apart))
    print(what, f"{len(apart)} of {len(cpu)} bytes differ, by {max(apart, default=0)} at most", flush=True)


def keyed(frame, color, similarity):
    """What chromakey_cuda makes of a frame of yuv420p, by its kernel's source. It is not what the CPU's filter makes: it reads its
    textures with a linear filter at whole coordinates, which lie between pixels, so each value is the mean of four."""
    luma, chroma = WIDTH * HEIGHT, WIDTH * HEIGHT // 4

    def mean(plane, width, height, x, y):
        return sum(plane[max(row, 0) * width + max(column, 0)] for row in (y - 1, y) for column in (x - 1, x)) / 4

    def means(plane, width, height):
        return [mean(plane, width, height, x, y) for y in range(height) for x in range(width)]

    y = means(frame[:luma], WIDTH, HEIGHT)
    width, height = WIDTH // 2, HEIGHT // 2
    u, v = (means(frame[at:at + chroma], width, height) for at in (luma, luma + chroma))
    apart = [math.hypot(a - color[0], b - color[1]) / 255 / math.sqrt(2) for a, b in zip(u, v)]
    alpha = []
    for row in range(height):
        for column in range(width):
            near = [apart[r * width + c] for r in range(max(row - 1, 0), min(row + 2, height))
                    for c in range(max(column - 1, 0), min(column + 2, width))]
            alpha.append(0 if sum(near) / len(near) < similarity else 255)
    wide = [alpha[row // 2 * width + column // 2] for row in range(HEIGHT) for column in range(WIDTH)]
    return y + u + v + wide


def chromakey():
    plain = frames(SOURCE, "format=yuv420p", False)[:WIDTH * HEIGHT * 3 // 2]
    u, v, similarity = 84, 54, 0.3
    got = frames(SOURCE, f"format=yuv420p,hwupload,chromakey_cuda=color=0x00{u:02x}{v:02x}:similarity={similarity}:yuv=1,"
                         "hwdownload,format=yuva420p", True)[:WIDTH * HEIGHT * 5 // 2]
    expected = keyed(plain, (u, v), similarity)
    # The kernel cuts off the fraction; a mean that is whole may come out just below.
    wrong = [at for at, (a, b) in enumerate(zip(got, expected)) if not b - 1.001 < a <= b]
    opaque = sum(got[WIDTH * HEIGHT * 3 // 2:]) / 255 / (WIDTH * HEIGHT)
    assert len(got) == len(expected) and not wrong and 0.1 < opaque < 0.9, (len(got), len(expected), wrong[:10], opaque)
    print(f"chromakey as its source says, {opaque:.0%} opaque", flush=True)


same("scale", *both(SOURCE, *one_input("hwupload,scale_cuda=80:60:interp_algo=nearest", "scale=80:60:flags=neighbor")))
same("overlay", *both(SOURCE + SMALL, "[0:v]format=yuv420p,hwupload[a];[1:v]format=yuv420p,hwupload[b];"
                                      "[a][b]overlay_cuda=x=10:y=20,hwdownload,format=yuv420p",
                      "[0:v]format=yuv420p[a];[1:v]format=yuv420p[b];[a][b]overlay=x=10:y=20"))
near("yadif", *both(SOURCE, *one_input("interlace,hwupload,yadif_cuda", "interlace,yadif")), share=0.02, step=16)
for algorithm in "bilinear", "bicubic", "lanczos":
    gpu, cpu = both(SOURCE, *one_input(f"hwupload,scale_cuda={WIDTH}:{HEIGHT}:interp_algo={algorithm}:passthrough=0", "null"))
    near(f"{algorithm} to the size it has", gpu, cpu, share=0.05, step=1)

chromakey()
encoder = ffmpeg(*SOURCE, "-frames:v", "1", "-c:v", "h264_nvenc", "-f", "null", "-")
assert encoder.returncode > 0 and b"libnvidia-encode.so.1" in encoder.stderr, encoder
print("FFmpeg")
