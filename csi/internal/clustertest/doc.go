// SPDX-License-Identifier: MIT OR Apache-2.0

// Package clustertest has tests of the driver with a real control plane: etcd, the API server with its admission and RBAC, the
// controller manager, the scheduler, and the resizer. The chart is installed there, and the controller is the program larder-csi
// with the rights of its service account.
//
// What a machine would do is played: kubelets, LVM, devices and mounts (package testrig), the provisioner, and a backing driver
// that attaches a volume to one node at a time. The node plugins are the real code with the rights of their service account.
//
// The environment variable LARDER_CONTROL_PLANE names the directory of the programs, which csi/control-plane makes. Without it
// the tests are skipped.
//
// Invariants: a program of a test ends with the test process, also if that is killed. A wait has a bound, and its error has the
// last lines of the programs' logs.
package clustertest
