// SPDX-License-Identifier: MIT OR Apache-2.0

// When a lease has expired.
//
// Invariant: no clock of another machine is read.

package fence

import (
	"sync"
	"time"
)

// Duration of a lease, and the interval at which its holder renews it.
const (
	LeaseDuration = 40 * time.Second
	RenewEvery    = 10 * time.Second
)

// Observer decides that leases have expired. It compares no clocks of different machines: a lease has expired when this
// process has seen it unchanged for its duration.
type Observer struct {
	// Now is the clock; tests set it.
	Now func() time.Time

	mutex sync.Mutex
	seen  map[string]sighting
}

type sighting struct {
	version string
	since   time.Time
}

// Expired records the version of the lease of a volume, and reports whether it has been the same for LeaseDuration.
func (o *Observer) Expired(id, version string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	if o.seen == nil {
		o.seen = map[string]sighting{}
	}
	last, known := o.seen[id]
	if !known || last.version != version {
		o.seen[id] = sighting{version: version, since: now()}
		return false
	}
	return now().Sub(last.since) >= LeaseDuration
}

// Forget drops what was seen of a volume.
func (o *Observer) Forget(id string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	delete(o.seen, id)
}
