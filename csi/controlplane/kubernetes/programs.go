// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build programs

// Package kubernetes names the programs of Kubernetes that the script control-plane builds.
//
// It is a module of its own, because Kubernetes names its parts with versions that exist only in its own repository: go.mod
// replaces them with the published ones of the same release.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
