"""NVIDIA Warp, told to load PTX: vectors, a reverse pass, atomics and a hash grid's neighbours."""
import numpy as np
import warp as wp

wp.config.cuda_output = "ptx"
wp.config.quiet = True
wp.init()


@wp.kernel
def fall(positions: wp.array(dtype=wp.vec3), velocities: wp.array(dtype=wp.vec3), step: float):
    i = wp.tid()
    v = velocities[i] + wp.vec3(0.0, -9.81, 0.0) * step
    velocities[i] = v
    positions[i] = positions[i] + v * step


@wp.kernel
def loss_of(x: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, wp.sin(x[i]) * x[i])


@wp.kernel
def count_neighbours(grid: wp.uint64, points: wp.array(dtype=wp.vec3), radius: float, counts: wp.array(dtype=int)):
    i = wp.tid()
    for other in wp.hash_grid_query(grid, points[i], radius):
        if wp.length(points[i] - points[other]) <= radius:
            counts[i] += 1


device = wp.get_device("cuda:0")
with wp.ScopedDevice(device):
    random = np.random.default_rng(1)
    start = random.random((300, 3)).astype(np.float32)
    positions, velocities = wp.array(start, dtype=wp.vec3), wp.zeros(300, dtype=wp.vec3)
    for _ in range(5):
        wp.launch(fall, dim=300, inputs=[positions, velocities, 0.1])
    fallen = start.copy()
    fallen[:, 1] -= 9.81 * 0.01 * 15
    np.testing.assert_allclose(positions.numpy(), fallen, atol=1e-4)

    x = wp.array(np.linspace(0, 2, 100, dtype=np.float32), requires_grad=True)
    loss = wp.zeros(1, dtype=float, requires_grad=True)
    tape = wp.Tape()
    with tape:
        wp.launch(loss_of, dim=100, inputs=[x], outputs=[loss])
    tape.backward(loss)
    p = x.numpy()
    np.testing.assert_allclose(loss.numpy()[0], np.sum(np.sin(p) * p), rtol=1e-4)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(p) * p + np.sin(p), rtol=1e-4, atol=1e-5)

    points = wp.array(start, dtype=wp.vec3)
    grid = wp.HashGrid(16, 16, 16)
    grid.build(points, 0.2)
    counts = wp.zeros(300, dtype=int)
    wp.launch(count_neighbours, dim=300, inputs=[grid.id, points, 0.2, counts])
    distances = np.linalg.norm(start[:, None] - start[None], axis=2)
    np.testing.assert_array_equal(counts.numpy(), (distances <= 0.2).sum(axis=1))
print("Warp:", device.name)
