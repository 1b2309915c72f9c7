// SPDX-License-Identifier: MIT OR Apache-2.0

// Package fence decides which node may serve a volume, and which flash may be used.
//
// A Record is the status of the volume's custom resource. It is changed only by compare-and-swap (the resource version of the
// API server), so that of two parties that decide at the same time one has to decide again. The functions here are pure: the
// same code runs in the driver and in the schedules of the test.
//
// Invariants:
//   - The generation rises with each grant to a node, and never falls.
//   - A node is granted the volume only while no other node holds it.
//   - The holder changes only after the helper pod of the former holder is gone from the API server (Free).
//   - Flash is used warm only if it was prepared under the generation that served last. All other flash is stale: another
//     node may have written to the origin since.
//   - While flash may hold dirty data, only the node of this flash is granted the volume.
//
// Why a generation beside the lease: a node that was paused while its lease expired does not know it when it resumes. Its flash
// does: the generation on it is older than that of the record. Why the attachment beside both: a paused server still has the
// origin open, and only the backing driver can take the device from it.
package fence

import (
	"fmt"
)

// Phase is what the holder does with the volume.
type Phase string

// The phases of a record.
const (
	// Free means that no node holds the volume.
	Free Phase = ""
	// Preparing means that the holder prepares its flash; no server runs.
	Preparing Phase = "Preparing"
	// Serving means that a helper pod on the holder serves the volume, or is started.
	Serving Phase = "Serving"
	// Releasing means that the holder has unmounted the volume; the helper pod is stopped.
	Releasing Phase = "Releasing"
)

// Flash is the flash that was in use last.
type Flash struct {
	// Node is where it is.
	Node string `json:"node"`
	// Generation is the grant under which it was in use last.
	Generation int64 `json:"generation"`
	// Dirty states that it may hold data that the origin lacks.
	Dirty bool `json:"dirty,omitempty"`
}

// Record is who holds the volume.
type Record struct {
	// Generation is the number of grants so far.
	Generation int64 `json:"generation,omitempty"`
	// Holder is the node that may serve the volume, if any.
	Holder string `json:"holder,omitempty"`
	// Phase is what the holder does.
	Phase Phase `json:"phase,omitempty"`
	// Flash is the flash that was in use last, if any.
	Flash *Flash `json:"flash,omitempty"`
}

// Refusal is why a node may not serve. It is not an internal error: the caller tries again later, or an administrator decides.
type Refusal struct{ Why string }

func (r *Refusal) Error() string { return r.Why }

func refuse(format string, args ...any) *Refusal { return &Refusal{Why: fmt.Sprintf(format, args...)} }

// Grant returns the record in which the node holds the volume, and whether it differs from the given one.
func Grant(record Record, node string) (Record, bool, error) {
	switch {
	case record.Holder == node && record.Phase == Releasing:
		return record, false, refuse("node %s still releases the volume; its helper pod is being stopped", node)
	case record.Holder == node:
		return record, false, nil
	case record.Holder != "":
		return record, false, refuse(
			"node %s holds the volume (generation %d); it is released when its helper pod is gone and its lease has expired",
			record.Holder, record.Generation)
	case record.Flash != nil && record.Flash.Dirty && record.Flash.Node != node:
		return record, false, refuse(
			"flash on node %s may hold data that the origin lacks; accepted: node %s", record.Flash.Node, record.Flash.Node)
	}
	record.Generation++
	record.Holder, record.Phase = node, Preparing
	return record, true, nil
}

// Use is what the holder does with its flash.
type Use string

// The uses of flash.
const (
	// Warm means that flash may be used with its content.
	Warm Use = "warm"
	// Cold means that flash and the server's state are removed and made again.
	Cold Use = "cold"
)

// Judge decides about the flash that the holder has: local is its generation, 0 if there is none.
func Judge(record Record, node string, local int64) (Use, error) {
	if record.Holder != node {
		return "", refuse("node %s does not hold the volume", node)
	}
	if local > record.Generation {
		return "", refuse("flash has generation %d, newer than the record's %d: the custom resource was restored from a backup",
			local, record.Generation)
	}
	// Prepared under this grant, before the preparation was interrupted, or in use under it.
	if local != 0 && local == record.Generation {
		return Warm, nil
	}
	last := record.Flash
	if last == nil || last.Node != node {
		return Cold, nil
	}
	if local != 0 && local == last.Generation {
		return Warm, nil
	}
	if last.Dirty {
		return "", refuse("flash has generation %d, and that with data that the origin lacks has generation %d; "+
			"accepted: that flash, or a removal of status.flash.dirty, which loses its data", local, last.Generation)
	}
	return Cold, nil
}

// Serve returns the record in which the holder's flash is in use. It is stored after the flash has the generation, and before a
// server is started, so that no write is acknowledged while the record states that flash is clean.
func Serve(record Record, node string, writeBack bool) (Record, error) {
	if record.Holder != node || record.Phase == Releasing {
		return record, refuse("node %s does not hold the volume", node)
	}
	dirty := writeBack || (record.Flash != nil && record.Flash.Node == node && record.Flash.Dirty)
	record.Phase = Serving
	record.Flash = &Flash{Node: node, Generation: record.Generation, Dirty: dirty}
	return record, nil
}

// Release returns the record in which the holder needs its helper pod no more. Flushed states that the origin has all data.
func Release(record Record, node string, flushed bool) (Record, bool) {
	if record.Holder != node || record.Phase == Releasing {
		return record, false
	}
	record.Phase = Releasing
	if record.Flash != nil {
		flash := *record.Flash
		flash.Dirty = flash.Dirty && !flushed
		record.Flash = &flash
	}
	return record, true
}

// Pods is what the API server knows about the helper pods of a volume, and about the node of its holder.
type Pods struct {
	// Current states that the helper pod of the record's generation exists, also if it is being deleted.
	Current bool
	// Other is the number of helper pods of other generations.
	Other int
	// Dead states that an administrator declared the holder's node dead, or deleted it.
	Dead bool
}

// Step is what the controller does next.
type Step string

// The steps of the controller.
const (
	// Wait means that nothing can be done until a pod is gone.
	Wait Step = "wait"
	// Start means that the helper pod is created.
	Start Step = "start"
	// Stop means that the helper pod is deleted.
	Stop Step = "stop"
	// SetFree means that the record becomes that of Released.
	SetFree Step = "free"
	// Nothing means that all is as it must be.
	Nothing Step = "nothing"
)

// Next decides the controller's step. Expired states that the holder's lease has not changed for longer than its duration.
// Helper pods of other generations are deleted in any case, and nothing is started before they are gone.
//
// On a dead node nothing is started: a pod that no kubelet runs would look like a server, and the volume would never be free. The
// pod that exists there is deleted, because it tolerates each taint: Kubernetes removes only pods that are being deleted. It is
// deleted once the lease has expired: a node that renews it runs, and has clients.
func Next(record Record, pods Pods, expired bool) Step {
	switch record.Phase {
	case Releasing:
		switch {
		case pods.Current:
			return Stop
		case pods.Other > 0:
			return Wait
		}
		return SetFree
	case Serving:
		switch {
		case pods.Current && pods.Dead && expired:
			return Stop
		case pods.Current:
			return Nothing
		case pods.Other > 0:
			return Wait
		case expired:
			return SetFree
		case pods.Dead:
			return Wait
		}
		return Start
	case Preparing:
		if expired && !pods.Current && pods.Other == 0 {
			return SetFree
		}
		return Nothing
	}
	if pods.Current {
		return Stop
	}
	return Nothing
}

// Released returns the record without a holder. The flash and its dirty data stay recorded.
func Released(record Record) Record {
	record.Holder, record.Phase = "", Free
	return record
}
