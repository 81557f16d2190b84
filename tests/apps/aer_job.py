"""Qiskit Aer's simulator on the GPU (kernels of its own and of Thrust): states beside NumPy's, counts of a measurement."""
import numpy as np
from qiskit import QuantumCircuit
from qiskit_aer import AerSimulator

qubits, random = 8, np.random.default_rng(1)
simulator = AerSimulator(method="statevector", device="GPU")
assert "GPU" in simulator.available_devices()


def rotation(theta, phi, lam):
    c, s = np.cos(theta / 2), np.sin(theta / 2)
    return np.array([[c, -np.exp(1j * lam) * s], [np.exp(1j * phi) * s, np.exp(1j * (phi + lam)) * c]])


circuit, state = QuantumCircuit(qubits), np.zeros((2,) * qubits, complex)  # of the state the last axis is qubit 0
state[(0,) * qubits] = 1
for _ in range(4):
    for qubit in range(qubits):
        angles = random.uniform(0, np.pi, 3)
        circuit.u(*angles, qubit)
        axis = qubits - 1 - qubit
        state = np.moveaxis(np.tensordot(rotation(*angles), state, axes=(1, axis)), 0, axis)
    for qubit in range(qubits - 1):
        circuit.cx(qubit, qubit + 1)
        control, target = qubits - 1 - qubit, qubits - 2 - qubit
        on = np.take(state, 1, control)
        both = np.stack([np.take(state, 0, control), np.flip(on, target)])  # the control is behind the target: same axis
        state = np.moveaxis(both, 0, control)
circuit.save_statevector()
got = np.asarray(simulator.run(circuit).result().get_statevector())
np.testing.assert_allclose(got, state.reshape(-1), atol=1e-10)

pair = QuantumCircuit(2, 2)
pair.h(0)
pair.cx(0, 1)
pair.measure([0, 1], [0, 1])
counts = simulator.run(pair, shots=1000, seed_simulator=1).result().get_counts()
assert set(counts) <= {"00", "11"} and sum(counts.values()) == 1000 and 300 < counts["00"] < 700, counts
print("Qiskit Aer: a state of", qubits, "qubits, and a pair's counts", counts)
