// SPDX-License-Identifier: MIT OR Apache-2.0

// Package testrig is a cluster for tests: client-go's fake clients, with the behaviour of an API server that the driver depends
// on, a kubelet that runs helper pods, and nodes with flash in memory. Only tests import it.
//
// Invariants: a change with an old resource version is a conflict; the status and the rest of a record are changed apart; an
// object with a finalizer, and a pod with a running server, stay until these are gone.
//
// Why not only the fake clients: they accept every change, and delete a pod at once, so that no test could see two holders.
package testrig

import (
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"larder.dev/csi/internal/store"
)

var (
	claimResource  = core.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	volumeResource = core.SchemeGroupVersion.WithResource("persistentvolumes")
	podResource    = core.SchemeGroupVersion.WithResource("pods")
)

// records is a client of the custom resources with the rules of an API server.
func records() *dynamicfake.FakeDynamicClient {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), store.Kinds)
	tracker := client.Tracker()
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*unstructured.Unstructured)
		object.SetResourceVersion("1")
		err := tracker.Create(action.GetResource(), object, action.GetNamespace())
		return true, object, err
	})
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, err := update(tracker, action.(clienttesting.UpdateAction))
		return true, object, err
	})
	client.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.DeleteAction).GetName()
		found, err := tracker.Get(action.GetResource(), action.GetNamespace(), name)
		if err != nil {
			return true, nil, err
		}
		object := found.DeepCopyObject().(*unstructured.Unstructured)
		if len(object.GetFinalizers()) == 0 {
			return true, nil, tracker.Delete(action.GetResource(), action.GetNamespace(), name)
		}
		if object.GetDeletionTimestamp() == nil {
			now := metav1.Now()
			object.SetDeletionTimestamp(&now)
			raise(object)
			err = tracker.Update(action.GetResource(), object, action.GetNamespace())
		}
		return true, nil, err
	})
	return client
}

func raise(object *unstructured.Unstructured) {
	version, _ := strconv.Atoi(object.GetResourceVersion())
	object.SetResourceVersion(strconv.Itoa(version + 1))
}

func update(tracker clienttesting.ObjectTracker, action clienttesting.UpdateAction) (runtime.Object, error) {
	given := action.GetObject().(*unstructured.Unstructured)
	found, err := tracker.Get(action.GetResource(), action.GetNamespace(), given.GetName())
	if err != nil {
		return nil, err
	}
	current := found.(*unstructured.Unstructured)
	if given.GetResourceVersion() != current.GetResourceVersion() {
		return nil, apierrors.NewConflict(action.GetResource().GroupResource(), given.GetName(), nil)
	}
	base, status := given, current
	if action.GetSubresource() == "status" {
		base, status = current, given
	}
	next := base.DeepCopy()
	if fields, has := status.DeepCopy().Object["status"]; has {
		next.Object["status"] = fields
	}
	raise(next)
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		return next, tracker.Delete(action.GetResource(), action.GetNamespace(), next.GetName())
	}
	return next, tracker.Update(action.GetResource(), next, action.GetNamespace())
}

// objects is a client of Kubernetes' own resources. StorageClasses exist unless their name begins with `missing`, and are of this
// driver if it begins with `cached`. It binds and extends claims at once, and keeps deleted pods for the kubelet.
func objects() *fake.Clientset {
	client := fake.NewClientset()
	tracker := client.Tracker()
	client.PrependReactor("create", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		claim := action.(clienttesting.CreateAction).GetObject().DeepCopyObject().(*core.PersistentVolumeClaim)
		if strings.HasPrefix(*claim.Spec.StorageClassName, "pending") {
			return true, claim, tracker.Create(claimResource, claim, action.GetNamespace())
		}
		claim.Spec.VolumeName = "pv-" + claim.Name
		claim.Status.Phase = core.ClaimBound
		claim.Status.Capacity = claim.Spec.Resources.Requests.DeepCopy()
		if err := tracker.Create(claimResource, claim, action.GetNamespace()); err != nil {
			return true, nil, err
		}
		return true, claim, tracker.Create(volumeResource, backingVolume(claim), "")
	})
	client.PrependReactor("update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		claim := action.(clienttesting.UpdateAction).GetObject().DeepCopyObject().(*core.PersistentVolumeClaim)
		claim.Status.Capacity = claim.Spec.Resources.Requests.DeepCopy()
		return true, claim, tracker.Update(claimResource, claim, action.GetNamespace())
	})
	client.PrependReactor("get", "storageclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "backing.example"}
		switch {
		case strings.HasPrefix(name, "missing"):
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), name)
		case strings.HasPrefix(name, "cached"):
			class.Provisioner = store.DriverName
		}
		return true, class, nil
	})
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		found, err := tracker.Get(podResource, action.GetNamespace(), action.(clienttesting.DeleteAction).GetName())
		if err != nil {
			return true, nil, err
		}
		pod := found.DeepCopyObject().(*core.Pod)
		if pod.DeletionTimestamp != nil {
			return true, pod, nil
		}
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return true, pod, tracker.Update(podResource, pod, action.GetNamespace())
	})
	return client
}

// backingVolume is the volume of a claim; that of the class `zonal` can be used in one zone.
func backingVolume(claim *core.PersistentVolumeClaim) *core.PersistentVolume {
	volume := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	if *claim.Spec.StorageClassName == "zonal" {
		volume.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
			MatchExpressions: []core.NodeSelectorRequirement{{Key: "zone", Operator: core.NodeSelectorOpIn, Values: []string{"z1"}}},
		}}}}
	}
	return volume
}

// Resources of the fake clients, for tests that change objects behind the driver.
var (
	Claims = claimResource
	Pods   = podResource
)
