// Package imagelab publishes images for tests and measurements as others publish them: in Debian's docker-registry, in
// OCI layouts, SIF files and unpacked directories, made by skopeo, umoci, mksquashfs and Apptainer's own library.
package imagelab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// Registry is Debian's docker-registry.
type Registry struct {
	Host string // and port

	dir string
	tls bool
	cmd *exec.Cmd
}

// RegistryOptions change a registry.
type RegistryOptions struct {
	Certificate *Certificate // nil: plain http
	Password    bool         // nobody is let in without one
}

// StartRegistry starts a registry on a port of its own, with its files in a directory of its own.
func StartRegistry(ctx context.Context, dir string, o RegistryOptions) (*Registry, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	r := &Registry{Host: fmt.Sprintf("127.0.0.1:%d", port), dir: dir, tls: o.Certificate != nil}
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: "+
		"{rootdirectory: %s/files}}\nhttp:\n  addr: %s\n", dir, r.Host)
	if c := o.Certificate; c != nil {
		text += fmt.Sprintf("  tls: {certificate: %s, key: %s}\n", c.File, c.Key)
	}
	if o.Password {
		text += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %s/htpasswd}}\n", dir)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "config.yml"), []byte(text), 0o644)); err != nil {
		return nil, err
	}
	return r, r.Start(ctx)
}

// Start starts the registry again, and waits until it answers.
func (r *Registry) Start(ctx context.Context) error {
	r.cmd = exec.CommandContext(ctx, "/usr/bin/docker-registry", "serve", filepath.Join(r.dir, "config.yml"))
	r.cmd.Dir = r.dir // an htpasswd that is missing is made
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := deathsig.Start(r.cmd, syscall.SIGKILL); err != nil {
		return err
	}
	if err := awaitPort(ctx, r.Host); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("docker-registry: %w: %s", err, text)
	}
	return nil
}

// Stop ends the registry. Its files stay.
func (r *Registry) Stop() {
	r.cmd.Process.Kill()
	r.cmd.Wait()
}

// Reference is what the image with a name is called for grange.
func (r *Registry) Reference(name string) string {
	if r.tls {
		return "oci://" + r.Host + "/" + name
	}
	return "oci+http://" + r.Host + "/" + name
}

// Push copies an image from an OCI layout, with skopeo.
func (r *Registry) Push(ctx context.Context, layout, tag, name string) error {
	return run(ctx, "skopeo", "copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false",
		"oci:"+layout+":"+tag, "docker://"+r.Host+"/"+name)
}

func run(ctx context.Context, program string, args ...string) error {
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", program, args, err, out)
	}
	return nil
}

// FreePort is a port of 127.0.0.1 that nobody listens to at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func awaitPort(ctx context.Context, address string) error {
	var d net.Dialer
	for range 200 {
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("nobody listens at %s", address)
}

// Certificate is of 127.0.0.1, signed by itself.
type Certificate struct{ File, Key string }

// NewCertificate makes one. A program trusts it that is started with SSL_CERT_FILE set to its File.
func NewCertificate(dir string) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), IsCA: true,
		BasicConstraintsValid: true,
		Subject:               pkix.Name{CommonName: "grange tests"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &Certificate{filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")}
	return c, errors.Join(
		os.WriteFile(c.File, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// Serve serves by http, or by https with a certificate, on a port of its own; the URL is of its root.
func Serve(c *Certificate, h http.Handler) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h}
	if c == nil {
		go s.Serve(l)
		return "http://" + l.Addr().String(), s.Close, nil
	}
	go s.ServeTLS(l, c.File, c.Key)
	return "https://" + l.Addr().String(), s.Close, nil
}

// Nginx is Debian's web server on a directory; the URL is of its root.
func Nginx(ctx context.Context, dir string) (url string, stop func(), err error) {
	port, err := FreePort()
	if err != nil {
		return "", nil, err
	}
	own, err := os.MkdirTemp("", "grange-nginx")
	if err != nil {
		return "", nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	text := fmt.Sprintf("daemon off; master_process off; user root; pid %[1]s/pid;\nevents {}\nhttp {\n"+
		"client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; "+
		"scgi_temp_path %[1]s; access_log off;\nserver { listen %[2]s; root %[3]s; }\n}\n", own, address, dir)
	file := filepath.Join(own, "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "/usr/sbin/nginx", "-c", file, "-e", own+"/log")
	stop = func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		os.RemoveAll(own)
	}
	if err = deathsig.Start(cmd, syscall.SIGKILL); err == nil {
		err = awaitPort(ctx, address)
	}
	if err != nil {
		log, _ := os.ReadFile(own + "/log")
		stop()
		return "", nil, fmt.Errorf("nginx: %w: %s", err, log)
	}
	return "http://" + address, stop, nil
}
