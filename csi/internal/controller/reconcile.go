// SPDX-License-Identifier: MIT OR Apache-2.0

// The loop that makes and deletes helper pods, and sets volumes free.
//
// Invariants: what the watches show decides whether there is a step to take; what is then read from the API server decides which.
// Each round takes one step, and may be repeated. Pods are deleted with their grace period: the object of a pod that is gone
// proves that its server has ended, unless an administrator declared the node dead.
//
// Why not from the API server alone: each volume in use would cost requests all the time, for its lease.

package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// workers is how many volumes are examined at the same time.
const workers = 8

// Run makes and deletes helper pods, until the context ends. Several controllers may run: each change of a record is a
// compare-and-swap, and the name of a pod is a function of the grant.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if err := c.Watches.start(ctx, queue.Add); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { c.work(ctx, queue) })
	}
	all.Wait()
	return nil
}

// work examines volumes of the queue until it is shut down. The queue gives a volume to one worker at a time.
func (c *Controller) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		id, stopped := queue.Get()
		if stopped {
			return
		}
		wait, err := c.round(ctx, id)
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

// round takes the next step for a volume if the watches show that there is one.
func (c *Controller) round(ctx context.Context, id string) (time.Duration, error) {
	if seen, exists := c.Watches.sight(id); exists {
		if next := c.decide(seen); next.rests() {
			return next.wait, nil
		}
	}
	return c.Reconcile(ctx, id)
}

// sight is what a decision is made from.
type sight struct {
	volume *store.Volume
	// pods are the helper pods of the volume.
	pods []*core.Pod
	// lease is that of the holder, in the words of store.SeenIn.
	lease string
	// stray states that there is a lease of another node than the holder.
	stray bool
	// dead states that the holder's node was declared dead or deleted, flashGone that the node of the flash does not exist.
	dead, flashGone bool
}

// decision is what is done for a volume.
type decision struct {
	step    fence.Step
	expired bool
	// stops are the helper pods of other grants and those that have ended.
	stops []string
	// finishes states that the volume is deleted, and no node has to remove flash of it.
	finishes bool
	// unleases states that there is a lease of a former holder: a node changes only its own.
	unleases bool
	// wait is when to decide again, 0 for when something changes.
	wait time.Duration
}

func (d decision) rests() bool {
	return len(d.stops) == 0 && !d.finishes && !d.unleases && (d.step == fence.Nothing || d.step == fence.Wait)
}

func (c *Controller) decide(seen sight) decision {
	volume, next := seen.volume, decision{}
	pods := fence.Pods{Dead: seen.dead}
	current := PodName(volume.Name, volume.Status.Generation)
	for _, pod := range seen.pods {
		ended := pod.Status.Phase == core.PodFailed || pod.Status.Phase == core.PodSucceeded
		if pod.Name == current && volume.Status.Holder != "" {
			pods.Current = true
			if !ended {
				continue
			}
		} else {
			pods.Other++
		}
		if pod.DeletionTimestamp == nil {
			next.stops = append(next.stops, pod.Name)
		}
	}
	if volume.Status.Holder != "" {
		next.expired = c.Observer.Expired(volume.Name, fmt.Sprintf("%d %s", volume.Status.Generation, seen.lease))
	}
	next.step = fence.Next(volume.Status, pods, next.expired)
	free := volume.Status.Holder == ""
	next.finishes = free && volume.DeletionTimestamp != nil && volume.HasFinalizer() && (volume.Status.Flash == nil || seen.flashGone)
	next.unleases = seen.stray
	if volume.Status.Holder != "" || pods.Other > 0 || volume.DeletionTimestamp != nil {
		next.wait = again
	}
	return next
}

// Reconcile takes the next step for a volume, and returns when to take another one, 0 for when something changes.
func (c *Controller) Reconcile(ctx context.Context, id string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	seen, err := c.look(ctx, id)
	if apierrors.IsNotFound(err) {
		c.Observer.Forget(id)
		return 0, c.Leases.Delete(ctx, id)
	}
	if err != nil {
		return 0, err
	}
	next, volume := c.decide(seen), seen.volume
	for _, name := range next.stops {
		if err := c.stop(ctx, name); err != nil {
			return 0, err
		}
	}
	switch next.step {
	case fence.Start:
		_, err = c.Kubernetes.CoreV1().Pods(c.Namespace).Create(ctx, c.Helper.pod(volume, c.Namespace), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case fence.Stop:
		err = c.stop(ctx, PodName(id, volume.Status.Generation))
	case fence.SetFree:
		klog.Infof("volume %s: released by node %s (generation %d, lease expired: %v)", id, volume.Status.Holder,
			volume.Status.Generation, next.expired)
		volume.Status = fence.Released(volume.Status)
		_, err = c.Store.UpdateStatus(ctx, volume)
		next.unleases = true
	}
	if err == nil && next.unleases {
		err = c.Leases.Delete(ctx, id)
	}
	if err == nil && next.finishes {
		if flash := volume.Status.Flash; flash != nil {
			klog.Infof("volume %s: node %s does not exist any more, its flash is not removed", id, flash.Node)
		}
		err = c.Store.FlashRemoved(ctx, volume)
	}
	return next.wait, err
}

// look reads from the API server what a decision is made from.
func (c *Controller) look(ctx context.Context, id string) (sight, error) {
	volume, err := c.Store.Volume(ctx, id)
	if err != nil {
		return sight{}, err
	}
	seen := sight{volume: volume}
	list, err := c.Kubernetes.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: store.VolumeLabel + "=" + id})
	if err != nil {
		return sight{}, err
	}
	for n := range list.Items {
		seen.pods = append(seen.pods, &list.Items[n])
	}
	lease, err := c.Leases.Lease(ctx, id)
	if err != nil {
		return sight{}, err
	}
	seen.stray, seen.lease = store.IsStray(lease, volume.Status.Holder), store.SeenIn(lease, volume.Status.Holder)
	if holder := volume.Status.Holder; holder != "" {
		node, err := c.node(ctx, holder)
		if err != nil {
			return sight{}, err
		}
		seen.dead = isDead(node)
	} else if flash := volume.Status.Flash; flash != nil && volume.DeletionTimestamp != nil {
		node, err := c.node(ctx, flash.Node)
		if err != nil {
			return sight{}, err
		}
		seen.flashGone = node == nil
	}
	return seen, nil
}

// node reads a node, nil if it does not exist.
func (c *Controller) node(ctx context.Context, name string) (*core.Node, error) {
	node, err := c.Kubernetes.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// isDead reports whether an administrator declared the node dead by a taint, or deleted it.
func isDead(node *core.Node) bool {
	return node == nil ||
		slices.ContainsFunc(node.Spec.Taints, func(taint core.Taint) bool { return taint.Key == core.TaintNodeOutOfService })
}

// stop deletes a pod in the ordinary way: the object stays until the kubelet has confirmed that the containers have ended.
func (c *Controller) stop(ctx context.Context, name string) error {
	err := c.Kubernetes.CoreV1().Pods(c.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
