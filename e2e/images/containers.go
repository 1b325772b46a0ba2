package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/grange-project/grange/e2e/images/imagelab"
)

// containers are container images as others publish them, and what does so.
type containers struct {
	*trial
	dir         string // of layout, bundle and SIF file
	bundle      imagelab.Bundle
	digest      string
	certificate *imagelab.Certificate
	plain, tls  *imagelab.Registry
	locked      *imagelab.Registry // lets nobody in
	// references of names in registries of our own, without a trailing slash
	odd, oddTLS, token, tokenRefused, tokenElsewhere string
	stops                                            []func()
}

const tag = "1"

// publish makes one image, and publishes it everywhere.
func (t *trial) publish(ctx context.Context, dir string, c *imagelab.Certificate) (_ *containers, err error) {
	p := &containers{trial: t, dir: dir, certificate: c}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	image, err := good()
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	p.digest = digest.String()
	if err := errors.Join(err, imagelab.AddToLayout(p.path("layout"), tag, image)); err != nil {
		return nil, err
	}
	if p.bundle, err = imagelab.Unpack(ctx, p.path("layout"), tag, p.path("bundle")); err != nil {
		return nil, err
	}
	// What Apptainer would run, which makes no devices.
	if err := errors.Join(os.RemoveAll(filepath.Join(p.bundle.Tree, "devices")), p.runscript(),
		imagelab.WriteSIF(ctx, p.bundle.Tree, p.path("image.sif"))); err != nil {
		return nil, err
	}
	return p, p.serve(ctx)
}

func (p *containers) path(name string) string { return filepath.Join(p.dir, name) }

func (p *containers) close() {
	for _, stop := range p.stops {
		stop()
	}
}

// runscript is what a SIF file starts with.
func (p *containers) runscript() error {
	dir := filepath.Join(p.bundle.Tree, ".singularity.d")
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "runscript"), []byte("#!/busybox sh\necho run \"$@\"\n"), 0o755))
}

// serve starts registries: three of Debian's, and two of our own.
func (p *containers) serve(ctx context.Context) (err error) {
	for _, r := range []struct {
		at   **imagelab.Registry
		name string
		o    imagelab.RegistryOptions
	}{
		{&p.plain, "plain", imagelab.RegistryOptions{}},
		{&p.tls, "tls", imagelab.RegistryOptions{Certificate: p.certificate}},
		{&p.locked, "locked", imagelab.RegistryOptions{Password: true}},
	} {
		if *r.at, err = imagelab.StartRegistry(ctx, p.path(r.name), r.o); err != nil {
			return err
		}
		p.stops = append(p.stops, (*r.at).Stop)
	}
	for _, r := range []*imagelab.Registry{p.plain, p.tls} {
		if err := r.Push(ctx, p.path("layout"), tag, "some/good:"+tag); err != nil {
			return err
		}
	}
	over, elsewhere := make(chan struct{}), "http://"+p.plain.Host
	p.stops = append(p.stops, sync.OnceFunc(func() { close(over) }))
	odd := oddRegistry(p.plain.Host, elsewhere, over)
	for _, r := range []struct {
		at          *string
		certificate *imagelab.Certificate
		h           http.Handler
	}{
		{&p.odd, nil, odd},
		{&p.oddTLS, p.certificate, odd},
		{&p.token, nil, tokenRegistry(p.plain.Host, "")},
		{&p.tokenRefused, nil, tokenRegistry(p.plain.Host, elsewhere+"/none")},
		{&p.tokenElsewhere, p.certificate, tokenRegistry(p.plain.Host, "")},
	} {
		url, stop, err := imagelab.Serve(r.certificate, r.h)
		if err != nil {
			return err
		}
		p.stops = append(p.stops, func() { stop() })
		*r.at = strings.Replace(strings.Replace(url, "https://", "oci://", 1), "http://", "oci+http://", 1)
	}
	return nil
}

// inventory prints all that is below /data, by programs of the image alone.
const inventory = `b=/busybox; cd /data; $b find . | $b sort | while read -r f; do
if [ -L "$f" ]; then echo "$f -> $($b readlink "$f")"
elif [ -f "$f" ]; then $b stat -c "%n %a %u %g %h %s" "$f"; $b sha256sum <"$f"
else $b stat -c "%n %F %a %u %g" "$f"; fi; done`

// inBundle runs a program as a runtime would, in the tree that umoci made.
func (p *containers) inBundle(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.bundle.Tree}
	cmd.Dir, cmd.Env = p.bundle.Dir, p.bundle.Env
	if err := os.MkdirAll(filepath.Join(p.bundle.Tree, p.bundle.Dir), 0o755); err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", argv, err, out)
	}
	return string(out), err
}

// sources adds the image from each place, and compares what a VM sees of it with what umoci unpacked.
func (p *containers) sources(ctx context.Context) {
	want, err := p.inBundle(ctx, "/busybox", "sh", "-c", inventory)
	if err != nil || strings.Count(want, "\n") < 40 {
		p.result("inventory", fmt.Errorf("%w: %s", err, want))
		return
	}
	for name, ref := range map[string]string{
		"docker-registry":           p.plain.Reference("some/good:" + tag),
		"docker-registry by digest": p.plain.Reference("some/good@" + p.digest),
		"docker-registry by https":  p.tls.Reference("some/good:" + tag),
		"an OCI layout":             "oci-layout:" + p.path("layout"),
		"an unpacked directory":     "dir:" + p.bundle.Tree,
		"a SIF file":                p.path("image.sif"),
		"a token for anybody":       p.token + "/some/good:" + tag,
		"layers from elsewhere":     p.odd + "/elsewhere/some/good:" + tag,
		"bytes behind blobs":        p.odd + "/long-blobs/some/good:" + tag, // nobody reads them
		"a connection that breaks":  p.odd + "/breaks-once/some/good:" + tag,
	} {
		p.result("source: "+name, p.source(ctx, ref, want))
	}
	p.result("source: a registry that comes back", p.comesBack(ctx))
	p.result("honoured: command, environment, directory", p.honoured(ctx))
}

func (p *containers) source(ctx context.Context, ref, want string) error {
	if _, _, err := p.add(ctx, "added", ref); err != nil {
		return err
	}
	if out, err := p.lab.Grange(ctx, "image", "verify", "added").CombinedOutput(); err != nil {
		return fmt.Errorf("verify: %w: %s", err, out)
	}
	got, err := p.exec(ctx, "--image", "added", "--", "/busybox", "sh", "-c", inventory)
	if err == nil && got != want {
		err = fmt.Errorf("the VM sees another tree:\n%s\n... than\n%s", got, want)
	}
	if err == nil {
		got, err = p.exec(ctx, "--image", "added", "--", "/busybox", "sh", "-c", "/busybox ls -A /devices 2>/dev/null || echo -n")
	}
	if err == nil && got != "" {
		err = fmt.Errorf("devices of the image: %s", got)
	}
	return errors.Join(err, p.noSetuid(), p.remove(ctx, "added"))
}

func (p *containers) exec(ctx context.Context, args ...string) (string, error) {
	cmd := p.lab.Exec(ctx, args...)
	cmd.Dir = "/"
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("grange exec: %w: %s", err, messages.String())
	}
	return string(out), err
}

// noSetuid: no file of the store has the rights or the type that one of the image has.
func (p *containers) noSetuid() error {
	return filepath.WalkDir(filepath.Join(p.lab.Dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 {
			return fmt.Errorf("%s is %v on the host", path, info.Mode())
		}
		return nil
	})
}

// comesBack: a registry that is away is an error, and none of the next try.
func (p *containers) comesBack(ctx context.Context) error {
	ref := p.tls.Reference("some/good:" + tag)
	p.tls.Stop()
	_, code, err := p.add(ctx, "added", ref)
	if code != "image-source" {
		return fmt.Errorf("code %q: %w", code, err)
	}
	if err := p.tls.Start(ctx); err != nil {
		return err
	}
	if _, _, err := p.add(ctx, "added", ref); err != nil {
		return err
	}
	return p.remove(ctx, "added")
}

// honoured runs the image as it is: its entry point, command, environment and directory are what umoci tells a runtime.
// Its user is not: a job is its caller's, as in Apptainer.
func (p *containers) honoured(ctx context.Context) error {
	want, err := p.inBundle(ctx, p.bundle.Args...)
	if err != nil {
		return err
	}
	if _, _, err := p.add(ctx, "added", p.plain.Reference("some/good:"+tag)); err != nil {
		return err
	}
	defer p.remove(ctx, "added")
	got, err := p.exec(ctx, "--image", "added")
	if i := strings.Index(got, "/opt/bin:/usr/bin:"); i >= 0 { // the caller's directories come behind
		end := strings.IndexByte(got[i:], '\n') + i
		got = got[:i] + "/opt/bin:/usr/bin" + got[end:]
	}
	if err != nil || got != want {
		return fmt.Errorf("in the VM: %q, by a runtime: %q, %w", got, want, err)
	}
	got, err = p.exec(ctx, "--image", "added", "--env", "OURS=the caller's", "--", "/busybox", "sh", "-c",
		`/busybox id -u; echo "$OURS"; /busybox pwd`)
	if want := "0\nthe caller's\n/work/here\n"; err != nil || got != want {
		return fmt.Errorf("in the VM: %q, not %q, %w", got, want, err)
	}
	return nil
}

// hostile: what must not come in, from layouts and from registries that are honest and are not.
func (p *containers) hostile(ctx context.Context) {
	layers, err := hostileLayers()
	if err != nil {
		p.result("hostile layers", err)
		return
	}
	for name, l := range layers {
		p.result("refused: "+name, p.hostileLayer(ctx, l))
	}
	bad, source := []string{"bad-image"}, []string{"image-source"}
	good := "/some/good:" + tag
	for name, c := range map[string]struct {
		ref   string
		codes []string
	}{
		"other blobs":                {p.odd + "/other-blobs" + good, bad},
		"another manifest":           {p.odd + "/other-manifests/some/good@" + p.digest, []string{"bad-image", "image-source"}},
		"blobs cut short":            {p.odd + "/cut-blobs" + good, source},
		"blobs that are shorter":     {p.odd + "/short-blobs" + good, []string{"bad-image", "image-source"}},
		"a thousand layers":          {p.odd + "/many-layers" + good, bad},
		"a manifest of a gigabyte":   {p.odd + "/huge-manifests" + good, bad},
		"no manifest":                {p.odd + "/no-manifest" + good, []string{"bad-image", "image-source"}},
		"a broken registry":          {p.odd + "/broken" + good, source},
		"a busy registry":            {p.odd + "/busy" + good, source},
		"a circle of a registry":     {p.odd + "/circle" + good, source},
		"a file of a registry":       {p.odd + "/file" + good, source},
		"a token that is refused":    {p.tokenRefused + good, source},
		"a redirection to http":      {p.oddTLS + "/elsewhere" + good, source},
		"a token by http":            {p.tokenElsewhere + good, source},
		"http that nobody asked for": {"oci://" + p.plain.Host + good, source},
		"a password":                 {p.locked.Reference("some/good:" + tag), source},
		"no such image":              {p.plain.Reference("some/none:" + tag), source},
		"no such digest":             {p.plain.Reference("some/good@sha256:" + strings.Repeat("0", 64)), source},
		"no such tag":                {"oci-layout:" + p.path("layout") + ":2", bad},
		"no layout":                  {"oci-layout:" + p.dir, source},
		"no directory":               {"dir:" + p.path("none"), source},
		"a disk as a SIF file":       {"sif:" + filepath.Join(p.files.dir, "disk.raw"), bad},
		"detours":                    {"dir:" + p.dir + "/../..", []string{"bad-image-source"}},
	} {
		p.result("refused: "+name, p.refused(ctx, []string{c.ref}, c.codes))
	}
	for name, change := range map[string]func([]byte) []byte{
		"a blob of a layout cut short": func(b []byte) []byte { return b[:len(b)-9] },
		"a blob of a layout changed":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		p.result("refused: "+name, p.damagedLayout(ctx, change))
	}
	p.silent(ctx)
}

// hostileLayer is refused from a layout and from a registry alike.
func (p *containers) hostileLayer(ctx context.Context, l v1.Layer) error {
	i, err := image(v1.Config{}, zipped(layer(dir("data"))))
	if err != nil {
		return err
	}
	if i, err = appendLayer(i, l); err != nil {
		return err
	}
	layout := p.path("hostile")
	defer os.RemoveAll(layout)
	to, err := name.ParseReference(p.plain.Host+"/hostile/layer:1", name.Insecure)
	if err := errors.Join(err, imagelab.AddToLayout(layout, tag, i), remote.Write(to, i)); err != nil {
		return err
	}
	bad := []string{"bad-image"}
	return errors.Join(p.refused(ctx, []string{"oci-layout:" + layout}, bad),
		p.refused(ctx, []string{p.plain.Reference("hostile/layer:1")}, bad))
}

// damagedLayout changes the largest blob of a copy of the layout.
func (p *containers) damagedLayout(ctx context.Context, change func([]byte) []byte) error {
	layout := p.path("damaged")
	defer os.RemoveAll(layout)
	if err := os.CopyFS(layout, os.DirFS(p.path("layout"))); err != nil {
		return err
	}
	blobs, err := filepath.Glob(layout + "/blobs/sha256/*")
	var largest []byte
	at := ""
	for _, blob := range blobs {
		if b, err := os.ReadFile(blob); err == nil && len(b) > len(largest) {
			at, largest = blob, b
		}
	}
	if err := errors.Join(err, os.WriteFile(at, change(largest), 0o644)); err != nil {
		return err
	}
	return p.refused(ctx, []string{"oci-layout:" + layout}, []string{"bad-image", "image-source"})
}

// silent are registries that answer nothing: they are given up, all at the same time to save some.
func (p *containers) silent(ctx context.Context) {
	refs := []string{p.odd + "/silent/some/good:" + tag, p.odd + "/silent-blobs/some/good:" + tag}
	errs := make([]error, len(refs))
	var wg sync.WaitGroup
	for i, ref := range refs {
		wg.Go(func() {
			_, code, err := p.add(ctx, fmt.Sprintf("silent-%d", i), ref)
			if errs[i] = nil; code != "image-source" {
				errs[i] = fmt.Errorf("code %q: %w", code, err)
			}
		})
	}
	wg.Wait()
	for i, ref := range refs {
		p.result("refused: silence at "+ref, errors.Join(errs[i], p.emptyPartial()))
	}
}

// kills ends the agent while it fetches an image.
func (p *containers) kills(ctx context.Context) {
	ref := p.odd + "/slow/some/good:" + tag
	for _, step := range []string{"downloading", "download: 30 %", "download: 90 %", "importing"} {
		p.result("killed: a registry's image, "+step, p.killed(ctx, []string{ref}, step))
	}
	p.result("killed: a directory, importing", p.killed(ctx, []string{"dir:" + p.bundle.Tree}, "importing"))
}

// forms are references that cycles take turns with.
func (p *containers) forms() []string {
	return []string{"oci-layout:" + p.path("small"), p.plain.Reference("small:1"), "dir:" + p.path("small-tree"),
		p.path("small.sif")}
}

// small publishes a small image for cycles.
func (p *containers) small(ctx context.Context) error {
	i, err := image(v1.Config{}, zipped(layer(dir("data"), file("data/x", "x"))))
	tree := p.path("small-tree")
	return errors.Join(err, imagelab.AddToLayout(p.path("small"), tag, i), p.plain.Push(ctx, p.path("small"), tag, "small:1"),
		os.MkdirAll(tree+"/data", 0o755), os.WriteFile(tree+"/data/x", []byte("x"), 0o644),
		imagelab.WriteSIF(ctx, tree, p.path("small.sif")))
}
