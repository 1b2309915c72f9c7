// SPDX-License-Identifier: MIT OR Apache-2.0

// The data of a volume: pages of 4 KiB, each with its number, its version and text that depends on both. A page of an older
// version is a stale read.

package lab

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	pageBytes = 4096
	// pages of the content of a volume: 16 MiB.
	pages = 4096
)

func page(number, version int) []byte {
	text := make([]byte, pageBytes)
	random := rand.NewChaCha8([32]byte{byte(number), byte(number >> 8), byte(version), byte(version >> 8), byte(version >> 16)})
	_, _ = random.Read(text)
	binary.LittleEndian.PutUint64(text, uint64(number))
	binary.LittleEndian.PutUint64(text[8:], uint64(version))
	return text
}

// versionOf verifies a page and returns its version.
func versionOf(text []byte, number int) (int, error) {
	version := int(binary.LittleEndian.Uint64(text[8:]))
	if string(page(number, version)) != string(text) {
		return 0, fmt.Errorf("page %d: its content is none that was written", number)
	}
	return version, nil
}

// write writes each step-th page in this version, durably.
func (v *volume) write(version, step int) error {
	flags := os.O_RDWR
	if v.fileSystem != "" {
		flags |= os.O_CREATE
	}
	file, err := os.OpenFile(v.content(), flags, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for number := 0; number < pages; number += step {
		if _, err := file.WriteAt(page(number, version), int64(number)*pageBytes); err != nil {
			return err
		}
	}
	return file.Sync()
}

// uncached drops the kernel's caches, so that reads reach the server.
func uncached() error { return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o644) }

// versions reads all pages.
func (v *volume) versions() ([]int, error) {
	if err := uncached(); err != nil {
		return nil, err
	}
	file, err := os.Open(v.content())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	all, text := make([]int, pages), make([]byte, pageBytes)
	for number := range all {
		for n := 0; n < pageBytes; {
			got, err := reader.Read(text[n:])
			if err != nil {
				return nil, fmt.Errorf("page %d: %w", number, err)
			}
			n += got
		}
		if all[number], err = versionOf(text, number); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// verify reads all pages: each step-th one has the version, the others have the older one.
func (v *volume) verify(version, step, older int) error {
	all, err := v.versions()
	if err != nil {
		return err
	}
	for number, got := range all {
		want := older
		if number%step == 0 {
			want = version
		}
		if got != want {
			return fmt.Errorf("page %d has version %d, expected %d", number, got, want)
		}
	}
	return nil
}

// ledger is the file on the host with the writes that were acknowledged.
func (v *volume) ledger() string { return filepath.Join(v.l.share, "ledger-"+v.name) }

// load writes pages one after another until the machine ends, and records each write after it was acknowledged.
func (v *volume) load(first int) error {
	file, err := os.OpenFile(v.content(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	ledger, err := os.OpenFile(v.ledger(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer ledger.Close()
	for version := first; ; version++ {
		number := rand.IntN(pages)
		if _, err := file.WriteAt(page(number, version), int64(number)*pageBytes); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(ledger, "%d %d\n", number, version); err != nil {
			return err
		}
	}
}

// acknowledged is the version of each page in the ledger; other pages have the first one.
func (v *volume) acknowledged(first int) (map[int]int, error) {
	text, err := os.ReadFile(v.ledger())
	if err != nil {
		return nil, err
	}
	found := map[int]int{}
	for number := range pages {
		found[number] = first
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		number, version, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		if found[n], err = strconv.Atoi(version); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// newest is the newest version in the ledger.
func (v *volume) newest(first int) (int, error) {
	wanted, err := v.acknowledged(first)
	newest := first
	for _, version := range wanted {
		newest = max(newest, version)
	}
	return newest, err
}

// asAcknowledged verifies that no page is older than the ledger states. It returns how many writes the ledger has, and the
// newest version.
func (v *volume) asAcknowledged(first int) (writes, newest int, err error) {
	wanted, err := v.acknowledged(first)
	if err != nil {
		return 0, 0, err
	}
	if newest, err = v.newest(first); err != nil {
		return 0, 0, err
	}
	all, err := v.versions()
	if err != nil {
		return 0, 0, err
	}
	for number, got := range all {
		// The write that was in progress may have arrived.
		if got < wanted[number] || got > newest+1 {
			return 0, 0, fmt.Errorf("page %d has version %d, version %d was acknowledged", number, got, wanted[number])
		}
		if got > wanted[number] && got != newest+1 {
			return 0, 0, fmt.Errorf("page %d has version %d, which was not written", number, got)
		}
	}
	return newest - first, newest, nil
}

// loaded waits until the load has acknowledged some writes.
func (v *volume) loaded(writes int) error {
	return eventually(time.Minute, func() error {
		text, err := os.ReadFile(v.ledger())
		if err != nil {
			return err
		}
		if strings.Count(string(text), "\n") < writes {
			return errors.New("too few writes were acknowledged")
		}
		return nil
	})
}
