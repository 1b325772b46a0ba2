package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/images/imagelab"
)

// files are what is published: one disk in many forms.
type files struct {
	dir    string
	digest string // of disk.raw
	size   int
}

func makeFiles(ctx context.Context, dir string) (*files, error) {
	const size = 64 << 20
	disk := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	for at := 1 << 20; at < size; at += 4 << 20 { // a quarter of it is data
		random.Read(disk[at : at+1<<20])
	}
	copy(disk[510:], "\x55\xaa")
	f := &files{dir: dir, digest: fmt.Sprintf("%x", sha256.Sum256(disk)), size: size}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "streams/v1"), 0o755),
		os.WriteFile(filepath.Join(dir, "disk.raw"), disk, 0o644)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", `
for f in qcow2 vmdk vhdx vdi vpc; do qemu-img convert -f raw -O $f disk.raw disk.$f; done
gzip -1 <disk.raw >disk.raw.gz
xz -0 <disk.raw >disk.raw.xz
zstd -q -1 <disk.raw >disk.raw.zst
gzip -1 <disk.vmdk >disk.vmdk.gz
sha256sum disk.* >SHA256SUMS
sed 's/^./0/; s/^0/1/' SHA256SUMS >WRONGSUMS
export GNUPGHOME=$(mktemp -d)
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
for who in publisher stranger; do
	gpg -q --batch --passphrase '' --quick-gen-key "$who@example.org" ed25519 sign never
	gpg --export "$who@example.org" >$who.gpg
done
gpg -q --batch -u publisher@example.org -o SHA256SUMS.gpg --detach-sign SHA256SUMS
gpg -q --batch -u publisher@example.org -o CHECKSUM --clearsign SHA256SUMS
qemu-img create -q -f qcow2 -F raw -b "$PWD/disk.raw" backed.qcow2
qemu-img create -q -f qcow2 -o "data_file=$PWD/data.raw" outside.qcow2 1M
head -c 100000 disk.qcow2 >short.qcow2
head -c 100000 disk.raw.gz >short.gz
gzip -1 <disk.raw.gz >twice.gz
head -c 3G /dev/zero | gzip -1 >zeros.gz
(head -c 1M disk.raw; yes | head -c 1900M) | gzip -1 >bomb.gz
printf '%s\n' '# Disk DescriptorFile' version=1 CID=1 parentCID=ffffffff 'createType="monolithicFlat"' \
	'RW 2048 FLAT "/etc/shadow" 0' >extent.vmdk
head -c 4096 /dev/urandom >noise
`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making images: %w: %s", err, out)
	}
	return f, f.index()
}

// product is what the simplestreams tree has.
const product = "org.example:12:amd64"

// index publishes disk.qcow2 by simplestreams.
func (f *files) index() error {
	disk, err := os.ReadFile(filepath.Join(f.dir, "disk.qcow2"))
	if err != nil {
		return err
	}
	type object = map[string]any
	item := object{"ftype": "disk-kvm.img", "path": "disk.qcow2", "size": len(disk),
		"sha256": fmt.Sprintf("%x", sha256.Sum256(disk))}
	for name, text := range map[string]object{
		"streams/v1/index.json": {"format": "index:1.0", "index": object{"images": object{
			"path": "streams/v1/images.json", "products": []string{product}}}},
		"streams/v1/images.json": {"format": "products:1.0", "products": object{product: object{"versions": object{
			"20260101": object{"items": object{"disk": item}}}}}},
	} {
		line, err := json.Marshal(text)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(f.dir, name), line, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// web is busybox's web server and nginx on the files, and a server of our own for what no honest server does.
type web struct {
	url   string // busybox
	nginx string // Debian's
	odd   string // ours
	httpd *exec.Cmd
	stop  func()
	close func() error // of odd
}

func serve(ctx context.Context, dir string) (*web, error) {
	port, err := imagelab.FreePort()
	if err != nil {
		return nil, err
	}
	w := &web{url: fmt.Sprintf("http://127.0.0.1:%d", port)}
	w.httpd = exec.CommandContext(ctx, "/bin/busybox", "httpd", "-f", "-p", fmt.Sprintf("127.0.0.1:%d", port), "-h", dir)
	w.httpd.Stderr = os.Stderr
	if err := w.httpd.Start(); err != nil {
		return nil, err
	}
	if w.nginx, w.stop, err = imagelab.Nginx(ctx, dir); err != nil {
		return nil, err
	}
	if w.odd, w.close, err = imagelab.Serve(nil, odd(dir)); err != nil {
		return nil, err
	}
	for range 100 {
		r, err := http.Get(w.url + "/SHA256SUMS")
		if err == nil {
			r.Body.Close()
			return w, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.New("busybox httpd does not answer")
}

func (w *web) end() {
	w.stop()
	w.close()
	w.httpd.Process.Kill()
	w.httpd.Wait()
}

// odd serves the files slowly below /slow/, breaks each connection below /broken/, sends without end at /endless, and
// leads round in circles at /circle/.
func odd(dir string) http.Handler {
	mux, files := http.NewServeMux(), http.FileServer(http.Dir(dir))
	mux.Handle("/slow/", http.StripPrefix("/slow", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files.ServeHTTP(&slow{ResponseWriter: w}, r)
	})))
	mux.Handle("/broken/", http.StripPrefix("/broken", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files.ServeHTTP(&slow{ResponseWriter: w, breaks: 16 << 20}, r)
	})))
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		block := []byte(strings.Repeat("\x55\xaa", 32<<10))
		for r.Method == http.MethodGet {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "99999999999999")
	})
	mux.HandleFunc("/circle/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	})
	return mux
}

// slow writes some 30 MB/s, or breaks the connection after some bytes.
type slow struct {
	http.ResponseWriter
	breaks, sent int
}

func (s *slow) Write(b []byte) (int, error) {
	n, err := s.ResponseWriter.Write(b)
	if s.sent += n; s.breaks > 0 && s.sent >= s.breaks {
		panic(http.ErrAbortHandler)
	}
	if s.breaks == 0 {
		time.Sleep(time.Duration(n) * time.Second / (30 << 20))
	}
	return n, err
}

// sameDisk compares what a guest would see of two disks.
func sameDisk(ctx context.Context, disk, raw, format string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", "compare", "-f", format, "-F", "raw", disk, raw).CombinedOutput()
	if err != nil {
		return fmt.Errorf("another disk: %w: %s", err, out)
	}
	return nil
}
