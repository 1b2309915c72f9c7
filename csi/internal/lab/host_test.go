// SPDX-License-Identifier: MIT OR Apache-2.0

// What runs on the host, beside the virtual machines.

package lab

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestPrepare makes in the API server what the chart and an administrator make. LARDER_CSI_PREPARE is a directory with the
// definitions of the custom resources.
func TestPrepare(t *testing.T) {
	share := os.Getenv("LARDER_CSI_PREPARE")
	if share == "" {
		t.Skip("LARDER_CSI_PREPARE is not set; tests/lab/csi sets it")
	}
	l := &lab{t: t, share: share, report: os.Stderr, began: time.Now()}
	connect(l).prepare(l)
	fmt.Println("prepared")
}

// TestProxy forwards connections from FORWARD, an address, to the socket TO, until it is killed. It runs on the host: a guest
// reaches the controller plugin in this way.
func TestProxy(t *testing.T) {
	address := os.Getenv("FORWARD")
	if address == "" {
		t.Skip("FORWARD is not set; tests/lab/csi sets it")
	}
	if err := forward("tcp", address, "unix", os.Getenv("TO")); err != nil {
		t.Fatal(err)
	}
	select {}
}
