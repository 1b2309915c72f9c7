// SPDX-License-Identifier: MIT OR Apache-2.0

// The loop that makes and deletes helper pods, and sets volumes free.
//
// Invariant: each round decides on what it reads from the API server, takes one step, and may be repeated. Pods are deleted
// with their grace period: the object of a pod that is gone proves that its server has ended, unless an administrator
// declared the node dead.

package controller

import (
	"context"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

// again is the interval at which a volume that a node holds is examined, for its lease.
const again = 5 * time.Second

// Run makes and deletes helper pods, until the context ends. Several controllers may run: each change of a record is a
// compare-and-swap, and the name of a pod is a function of the grant.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if err := c.watch(ctx, queue.Add); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		id, stopped := queue.Get()
		if stopped {
			return nil
		}
		wait, err := c.Reconcile(ctx, id)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.Errorf("volume %s: %v", id, err)
			queue.AddRateLimited(id)
		case wait != 0:
			queue.Forget(id)
			queue.AddAfter(id, wait)
		default:
			queue.Forget(id)
		}
		queue.Done(id)
	}
}

// Reconcile takes the next step for a volume, and returns when to take another one, 0 for when something changes.
func (c *Controller) Reconcile(ctx context.Context, id string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	volume, err := c.Store.Volume(ctx, id)
	if apierrors.IsNotFound(err) {
		c.Observer.Forget(id)
		return 0, c.Leases.Delete(ctx, id)
	}
	if err != nil {
		return 0, err
	}
	pods, err := c.pods(ctx, volume)
	if err != nil {
		return 0, err
	}
	expired := false
	if volume.Status.Holder != "" {
		seen, err := c.Leases.Seen(ctx, id, volume.Status.Holder)
		if err != nil {
			return 0, err
		}
		expired = c.Observer.Expired(id, fmt.Sprintf("%d %s", volume.Status.Generation, seen))
	}
	switch step := fence.Next(volume.Status, pods, expired); step {
	case fence.Start:
		_, err = c.Kubernetes.CoreV1().Pods(c.Namespace).Create(ctx, c.Helper.pod(volume, c.Namespace), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case fence.Stop:
		err = c.stop(ctx, PodName(id, volume.Status.Generation))
	case fence.SetFree:
		klog.Infof("volume %s: released by node %s (generation %d, lease expired: %v)", id, volume.Status.Holder,
			volume.Status.Generation, expired)
		volume.Status = fence.Released(volume.Status)
		_, err = c.Store.UpdateStatus(ctx, volume)
	}
	if err != nil {
		return 0, err
	}
	if volume.DeletionTimestamp != nil {
		return again, c.finish(ctx, volume)
	}
	if volume.Status.Holder != "" || pods.Other > 0 {
		return again, nil
	}
	return 0, nil
}

// pods counts the helper pods of a volume, and deletes those of other grants and those that have ended.
func (c *Controller) pods(ctx context.Context, volume *store.Volume) (fence.Pods, error) {
	var seen fence.Pods
	selector := store.VolumeLabel + "=" + volume.Name
	list, err := c.Kubernetes.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return seen, err
	}
	current := PodName(volume.Name, volume.Status.Generation)
	for n := range list.Items {
		pod := &list.Items[n]
		ended := pod.Status.Phase == core.PodFailed || pod.Status.Phase == core.PodSucceeded
		if pod.Name == current && volume.Status.Holder != "" {
			seen.Current = true
			if !ended {
				continue
			}
		} else {
			seen.Other++
		}
		if pod.DeletionTimestamp == nil {
			if err := c.stop(ctx, pod.Name); err != nil {
				return seen, err
			}
		}
	}
	return seen, nil
}

// stop deletes a pod in the ordinary way: the object stays until the kubelet has confirmed that the containers have ended.
func (c *Controller) stop(ctx context.Context, name string) error {
	err := c.Kubernetes.CoreV1().Pods(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// finish removes the finalizer of a deleted volume if no node has flash of it, or its node does not exist any more.
func (c *Controller) finish(ctx context.Context, volume *store.Volume) error {
	if !volume.HasFinalizer() || volume.Status.Holder != "" {
		return nil
	}
	if flash := volume.Status.Flash; flash != nil {
		_, err := c.Kubernetes.CoreV1().Nodes().Get(ctx, flash.Node, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		klog.Infof("volume %s: node %s does not exist any more, its flash is not removed", volume.Name, flash.Node)
	}
	return c.Store.FlashRemoved(ctx, volume)
}
