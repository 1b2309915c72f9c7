// SPDX-License-Identifier: MIT OR Apache-2.0

// Package settings reads what a StorageClass and a request ask for.
//
// Invariants: a value that is accepted contains no character that has a meaning in a path, in TOML or in a shell. An unknown
// key is refused, so that a misspelt one does not silently take its default.
//
// Why the presets are listed here although `larder presets` lists them too: whether flash may hold dirty data decides whether
// another node may take the volume, so an unknown preset must not count as clean; and a policy that the preset lacks is refused
// when the volume is created, not by a server that does not start.
package settings

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The parameters of a StorageClass.
const (
	BackingStorageClass = "backingStorageClass"
	CacheSize           = "cacheSize"
	Preset              = "preset"
	Policy              = "policy"
	WriteBudget         = "writeBudget"
)

// reserved is the prefix of the parameters that Kubernetes' provisioner adds.
const reserved = "csi.storage.k8s.io/"

// Sizes of volumes and caches, in bytes. Volumes are whole MiB, so that they may grow without a cold cache.
const (
	MiB          = int64(1) << 20
	LeastVolume  = MiB
	MostVolume   = int64(1) << 50
	LeastCache   = 64 * MiB
	DefaultBytes = int64(1) << 30
)

// Class is what the parameters of a StorageClass state.
type Class struct {
	BackingStorageClass string
	// CacheBytes is the size of the flash, 0 if CachePercent states it.
	CacheBytes   int64
	CachePercent int64
	Preset       string
	Policy       string
	WriteBudget  string
}

var (
	className   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	writeBudget = regexp.MustCompile(`^(any|[0-9]{1,12}(\.[0-9]{1,6})?([KMGTP]i?B?/day|DWPD))$`)
	percent     = regexp.MustCompile(`^([1-9][0-9]?|100)%$`)
)

// preset is one of the server's.
type preset struct {
	policies []string
	// writeBack states that flash may hold dirty data whatever the policy is, unless it is `through`.
	writeBack bool
}

// The write policies that presets have. The server refuses others.
var (
	copies  = []string{"async", "around", "through"}
	units   = []string{"async", "around", "through", "write-back"}
	pageLog = []string{"bounded", "full", "ordered", "through"}
)

var presets = map[string]preset{
	"larder": {policies: copies}, "sce": {policies: copies}, "slru": {policies: copies},
	"proc": {policies: units}, "flashcache": {policies: units}, "enhanceio": {policies: units}, "bcache": {policies: units},
	"prwc": {policies: units, writeBack: true},
	"face": {policies: pageLog, writeBack: true}, "face-basic": {policies: pageLog, writeBack: true},
}

// writeBack are the policies under which flash may hold dirty data.
var writeBack = []string{"write-back", "full", "ordered", "bounded"}

// ParseClass reads the parameters of a StorageClass.
func ParseClass(parameters map[string]string) (Class, error) {
	class := Class{Preset: "larder"}
	for _, key := range keys(parameters) {
		value := parameters[key]
		if strings.HasPrefix(key, reserved) {
			continue
		}
		var err error
		switch key {
		case BackingStorageClass:
			class.BackingStorageClass, err = matching(key, value, className, "the name of a StorageClass")
		case CacheSize:
			err = class.cacheSize(value)
		case Preset:
			class.Preset, err = listed(key, value, keys(presets), "")
		case Policy:
			class.Policy = value
		case WriteBudget:
			class.WriteBudget, err = matching(key, value, writeBudget, "any, 300GB/day or 0.5DWPD")
		default:
			err = fmt.Errorf("parameter %.64q: unknown; accepted: %s, %s, %s, %s, %s", key, BackingStorageClass, CacheSize, Preset,
				Policy, WriteBudget)
		}
		if err != nil {
			return Class{}, err
		}
	}
	if _, given := parameters[Policy]; given {
		of := fmt.Sprintf(" with preset %s", class.Preset)
		if _, err := listed(Policy, class.Policy, presets[class.Preset].policies, of); err != nil {
			return Class{}, err
		}
	}
	switch {
	case class.BackingStorageClass == "":
		return Class{}, fmt.Errorf("parameter %s: missing; accepted: the name of a StorageClass", BackingStorageClass)
	case class.CacheBytes == 0 && class.CachePercent == 0:
		return Class{}, fmt.Errorf("parameter %s: missing; accepted: a size (64Gi) or a share of the volume (10%%)", CacheSize)
	}
	return class, nil
}

func (c *Class) cacheSize(value string) error {
	if percent.MatchString(value) {
		c.CachePercent, _ = strconv.ParseInt(strings.TrimSuffix(value, "%"), 10, 64)
		return nil
	}
	bad := fmt.Errorf("parameter %s: got %.64q, accepted a size from 64Mi to 1Pi (64Gi), or a share of the volume from 1%% to 100%%",
		CacheSize, value)
	if len(value) > 32 {
		return bad
	}
	quantity, err := resource.ParseQuantity(value)
	if err != nil || quantity.Value() < LeastCache || quantity.Value() > MostVolume {
		return bad
	}
	c.CacheBytes = quantity.Value()
	return nil
}

// Cache is the size of the cache of a volume, in whole MiB.
func (c Class) Cache(volumeBytes int64) int64 {
	bytes := c.CacheBytes
	if c.CachePercent != 0 {
		// Without an overflow: volumeBytes is at most 2^50.
		bytes = volumeBytes * c.CachePercent / 100
	}
	return RoundUp(max(bytes, LeastCache))
}

// Largest is the size of the largest volume whose cache fits into free bytes of flash, 0 if there is none.
func (c Class) Largest(free int64) int64 {
	switch {
	case free < LeastCache || free < c.CacheBytes:
		return 0
	case c.CachePercent == 0:
		return MostVolume
	}
	return min(MostVolume, min(free, MostVolume)/c.CachePercent*100/MiB*MiB)
}

// WriteBack states whether flash may hold data that the origin lacks.
func WriteBack(preset, policy string) bool {
	if policy == "through" {
		return false
	}
	of, known := presets[preset]
	return of.writeBack || !known || slices.Contains(writeBack, policy)
}

// Bytes is the size of a volume for the range of a request, in whole MiB. A limit of 0 is none.
func Bytes(required, limit int64) (int64, error) {
	switch {
	case required < 0 || limit < 0 || (limit != 0 && required > limit):
		return 0, fmt.Errorf("capacity range: got %d to %d bytes, accepted: a limit that is at least the required size", required, limit)
	case required > MostVolume:
		return 0, fmt.Errorf("capacity range: got %d bytes, accepted: at most %d", required, MostVolume)
	case required == 0 && limit != 0 && limit < DefaultBytes:
		required = max(limit/MiB*MiB, LeastVolume)
	case required == 0:
		required = DefaultBytes
	}
	bytes := RoundUp(max(required, LeastVolume))
	if limit != 0 && bytes > limit {
		return 0, fmt.Errorf("capacity range: got at most %d bytes, accepted: a limit of at least %d, since volumes are whole MiB",
			limit, bytes)
	}
	return bytes, nil
}

// RoundUp is the next whole MiB.
func RoundUp(bytes int64) int64 { return (bytes + MiB - 1) / MiB * MiB }

func keys[V any](of map[string]V) []string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func matching(key, value string, pattern *regexp.Regexp, accepted string) (string, error) {
	if !pattern.MatchString(value) {
		return "", fmt.Errorf("parameter %s: got %.64q, accepted %s", key, value, accepted)
	}
	return value, nil
}

func listed(key, value string, accepted []string, when string) (string, error) {
	if !slices.Contains(accepted, value) {
		return "", fmt.Errorf("parameter %s: got %.64q, accepted%s: %s", key, value, when, strings.Join(accepted, ", "))
	}
	return value, nil
}
