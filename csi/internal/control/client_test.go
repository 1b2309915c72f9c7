// SPDX-License-Identifier: MIT OR Apache-2.0

// Servers that answer as they must, late, never, or with nonsense.

package control

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// server answers each connection with the same text, and then holds the connection for a moment.
func server(t *testing.T, text string, hold time.Duration) Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer stream.Close()
				_, _ = bufio.NewReader(stream).ReadString('\n')
				_, _ = stream.Write([]byte(text))
				time.Sleep(hold)
			}()
		}
	}()
	return Client{Socket: path}
}

func TestProgressComesBeforeTheResult(t *testing.T) {
	client := server(t, "{\"progress\":\"1 of 2\"}\n{\"ok\":{\"flushed\":true}}\n", 0)
	if err := client.Flush(context.Background(), time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsOfTheServerAreDistinguished(t *testing.T) {
	client := server(t, "{\"error\":{\"code\":3,\"message\":\"the origin failed\"}}\n", 0)
	_, err := client.Status(context.Background())
	if !Refused(err) || err.Error() != "the origin failed" {
		t.Fatalf("got %v", err)
	}
	_, err = Client{Socket: filepath.Join(t.TempDir(), "none")}.Status(context.Background())
	if err == nil || Refused(err) {
		t.Fatalf("got %v", err)
	}
}

func TestAServerThatDoesNotAnswerEndsTheCall(t *testing.T) {
	client := server(t, "", time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := client.Status(ctx)
	if err == nil || !strings.Contains(err.Error(), "no answer within the time limit") {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("the call took %v", took)
	}
}

func TestAnswersThatMakeNoSenseAreErrors(t *testing.T) {
	for _, text := range []string{"", "no JSON\n", "{\"ok\":[1]}\n", "{\"ok\":{}}\n", strings.Repeat("x", MostLine+1)} {
		client := server(t, text, 0)
		if err := client.Flush(context.Background(), time.Second); err == nil {
			t.Errorf("%.20q: no error", text)
		}
	}
}
