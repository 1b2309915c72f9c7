// SPDX-License-Identifier: MIT OR Apache-2.0

// The control plane: its programs, their keys and tokens.

package clustertest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users of the control plane, with their groups.
const (
	admin     = "admin"
	manager   = "system:kube-controller-manager"
	scheduler = "system:kube-scheduler"
)

// plane is a control plane on loopback.
type plane struct {
	dir, programs string
	port          int
	tokens        map[string]string

	etcd, api, manager, scheduler *process
}

// newPlane makes the files of a control plane and starts it.
func newPlane(dir, programs string) (*plane, error) {
	p := &plane{dir: dir, programs: programs, tokens: map[string]string{}}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p.port = ports[0]
	if err := p.keys(); err != nil {
		return nil, err
	}
	etcd := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	peers := "http://127.0.0.1:" + strconv.Itoa(ports[2])
	p.etcd = p.program("etcd", "--name=default", "--data-dir="+p.file("etcd"), "--listen-client-urls="+etcd,
		"--advertise-client-urls="+etcd, "--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers,
		"--initial-cluster=default="+peers, "--log-level=warn")
	p.api = p.program("kube-apiserver", "--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(p.port), "--cert-dir="+p.file("certificates"), "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC", "--anonymous-auth=false", "--token-auth-file="+p.file("tokens"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+p.file("accounts.pub"),
		"--service-account-signing-key-file="+p.file("accounts.key"), "--allow-privileged=true")
	if err := p.etcd.start(); err != nil {
		return p, err
	}
	if err := p.api.start(); err != nil {
		return p, err
	}
	if err := p.await(90 * time.Second); err != nil {
		return p, err
	}
	return p, p.controllers()
}

// controllers starts what uses the API server. The certificate of the API server exists since its first start.
func (p *plane) controllers() error {
	for _, user := range []string{manager, scheduler} {
		if err := p.kubeconfig(p.file(user), p.address(), p.file("certificates/apiserver.crt"), p.tokens[user]); err != nil {
			return err
		}
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	// A lost node is noticed after 8 s instead of 50 s.
	p.manager = p.program("kube-controller-manager", "--kubeconfig="+p.file(manager), "--authentication-kubeconfig="+p.file(manager),
		"--authorization-kubeconfig="+p.file(manager), "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(ports[0]),
		"--service-account-private-key-file="+p.file("accounts.key"), "--use-service-account-credentials=true", "--leader-elect=false",
		"--node-monitor-period=1s", "--node-monitor-grace-period=8s", "--pvclaimbinder-sync-period=2s",
		"--cert-dir="+p.file("certificates-of-manager"))
	p.scheduler = p.program("kube-scheduler", "--kubeconfig="+p.file(scheduler), "--authentication-kubeconfig="+p.file(scheduler),
		"--authorization-kubeconfig="+p.file(scheduler), "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(ports[1]),
		"--leader-elect=false", "--cert-dir="+p.file("certificates-of-scheduler"))
	if err := p.manager.start(); err != nil {
		return err
	}
	return p.scheduler.start()
}

func (p *plane) program(name string, args ...string) *process {
	return &process{name: name, log: p.file(name + ".log"), args: append([]string{filepath.Join(p.programs, name)}, args...)}
}

func (p *plane) file(name string) string { return filepath.Join(p.dir, name) }

func (p *plane) address() string { return "https://127.0.0.1:" + strconv.Itoa(p.port) }

// keys makes the tokens of the users, and the key with which tokens of service accounts are signed.
func (p *plane) keys() error {
	var lines string
	for user, group := range map[string]string{admin: "system:masters", manager: "", scheduler: ""} {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		p.tokens[user] = hex.EncodeToString(random)
		lines += fmt.Sprintf("%s,%s,%s,%q\n", p.tokens[user], user, user, group)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"tokens":       []byte(lines),
		"accounts.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"accounts.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	} {
		if err := os.WriteFile(p.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// config is that of a client with a token.
func (p *plane) config(token string) *rest.Config {
	return &rest.Config{
		Host: p.address(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: p.file("certificates/apiserver.crt")},
		QPS: 200, Burst: 400, Timeout: 30 * time.Second,
	}
}

// kubeconfig writes the file of a program that uses the API server.
func (p *plane) kubeconfig(path, address, authority, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["plane"] = &clientcmdapi.Cluster{Server: address, CertificateAuthority: authority}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "user"}
	config.CurrentContext = "context"
	return clientcmd.WriteToFile(*config, path)
}

// await waits until the API server is ready.
func (p *plane) await(bound time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	last := fmt.Errorf("no answer")
	for {
		select {
		case <-p.api.running():
			return fmt.Errorf("kube-apiserver ended\n%s%s", p.api.tail(20), p.etcd.tail(10))
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready within %v: %v\n%s%s", bound, last, p.api.tail(20), p.etcd.tail(10))
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := os.Stat(p.file("certificates/apiserver.crt")); err != nil {
			last = err
			continue
		}
		client, err := kubernetes.NewForConfig(p.config(p.tokens[admin]))
		if err != nil {
			return err
		}
		if _, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); last == nil {
			return nil
		}
	}
}

// restart kills these programs at the same moment, and starts them again.
func (p *plane) restart(programs ...*process) error {
	for _, program := range programs {
		program.kill()
	}
	for _, program := range programs {
		if err := program.start(); err != nil {
			return err
		}
	}
	return p.await(90 * time.Second)
}

func (p *plane) stop() {
	for _, program := range []*process{p.scheduler, p.manager, p.api, p.etcd} {
		if program != nil {
			program.stop()
		}
	}
}

func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
