"""OpenMM's CUDA platform, which compiles its kernels with NVRTC, beside its reference platform: bonds, angles, torsions,
a custom force and PME, whose FFT is its own; then some steps, in each precision."""
import numpy as np
import openmm as mm

COUNT, EDGE = 256, 3.0
TOLERANCES = {"single": 1e-3, "mixed": 1e-3, "double": 1e-6}  # of forces, relative to the largest of each kind


def particles():
    grid = np.stack(np.meshgrid(*[np.arange(7)] * 3), -1).reshape(-1, 3)[:COUNT] * 0.42 + 0.1
    return grid + np.random.default_rng(1).normal(0, 0.01, (COUNT, 3))


def nonbonded():
    force = mm.NonbondedForce()
    for i in range(COUNT):
        force.addParticle(0.1 * (-1) ** i, 0.3, 0.5)
    for i in range(0, COUNT - 1, 2):
        force.addException(i, i + 1, 0, 1, 0)
    force.setNonbondedMethod(mm.NonbondedForce.PME)
    force.setCutoffDistance(0.9)
    return force


def custom():
    force = mm.CustomNonbondedForce("k1*k2*(r-1)^2*step(1-r)")
    force.addPerParticleParameter("k")
    force.setNonbondedMethod(mm.CustomNonbondedForce.CutoffPeriodic)
    force.setCutoffDistance(0.9)
    for i in range(COUNT):
        force.addParticle([1 + 0.01 * i])
    for i in range(0, COUNT - 1, 2):
        force.addExclusion(i, i + 1)
    return force


def bonded():
    bonds, angles, torsions = mm.HarmonicBondForce(), mm.HarmonicAngleForce(), mm.PeriodicTorsionForce()
    for i in range(0, COUNT - 1, 2):
        bonds.addBond(i, i + 1, 0.4, 1000)
    for i in range(0, COUNT - 4, 4):
        angles.addAngle(i, i + 1, i + 2, 1.9, 40)
        torsions.addTorsion(i, i + 1, i + 2, i + 3, 2, 0.5, 3)
    return [bonds, angles, torsions]


def simulation(platform, **properties):
    system = mm.System()
    system.setDefaultPeriodicBoxVectors((EDGE, 0, 0), (0, EDGE, 0), (0, 0, EDGE))
    for _ in range(COUNT):
        system.addParticle(12)
    for group, force in enumerate([nonbonded(), custom(), *bonded()]):
        force.setForceGroup(group)
        system.addForce(force)
    context = mm.Context(system, mm.VerletIntegrator(0.0005), mm.Platform.getPlatformByName(platform), properties)
    context.setPositions(particles())
    return context


def forces_by_group(context):
    state = lambda group: context.getState(getForces=True, groups={group}).getForces(asNumpy=True)._value
    return [state(group) for group in range(context.getSystem().getNumForces())]


def positions_after(context, steps):
    context.getIntegrator().step(steps)
    return context.getState(getPositions=True).getPositions(asNumpy=True)._value


reference = simulation("Reference")
wanted, moved = forces_by_group(reference), positions_after(reference, 10)
for precision, tolerance in TOLERANCES.items():
    context = simulation("CUDA", Precision=precision)
    for force, there in zip(forces_by_group(context), wanted):
        np.testing.assert_allclose(force, there, atol=tolerance * np.abs(there).max(), rtol=0)
    np.testing.assert_allclose(positions_after(context, 10), moved, atol=tolerance)
print("OpenMM:", mm.Platform.getPlatformByName("CUDA").getPropertyValue(context, "DeviceName"))
