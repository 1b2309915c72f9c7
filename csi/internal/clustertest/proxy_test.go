// SPDX-License-Identifier: MIT OR Apache-2.0

// A proxy between the controller and the API server. At a request that a test chooses it holds the request, or kills the controller.

package clustertest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
)

// proxy forwards requests. The hook sees those that change something, and calls forward or not.
type proxy struct {
	server  *httptest.Server
	reverse *httputil.ReverseProxy

	mutex sync.Mutex
	hook  func(request *http.Request, writer http.ResponseWriter, forward func(http.ResponseWriter))
}

func newProxy(address, authority string) (*proxy, error) {
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate", authority)
	}
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	p := &proxy{reverse: httputil.NewSingleHostReverseProxy(target)}
	p.reverse.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	p.reverse.FlushInterval = -1
	p.reverse.ErrorHandler = func(writer http.ResponseWriter, _ *http.Request, _ error) { writer.WriteHeader(http.StatusBadGateway) }
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.StartTLS()
	return p, nil
}

func (p *proxy) serve(writer http.ResponseWriter, request *http.Request) {
	p.mutex.Lock()
	hook := p.hook
	p.mutex.Unlock()
	forward := func(writer http.ResponseWriter) { p.reverse.ServeHTTP(writer, request) }
	if hook == nil || request.Method == http.MethodGet {
		forward(writer)
		return
	}
	hook(request, writer, forward)
}

// intercept sets the hook, nil for none.
func (p *proxy) intercept(hook func(*http.Request, http.ResponseWriter, func(http.ResponseWriter))) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.hook = hook
}

// authority writes the certificate of the proxy.
func (p *proxy) authority(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}), 0o600)
}

func (p *proxy) stop() {
	p.server.CloseClientConnections()
	p.server.Close()
}
