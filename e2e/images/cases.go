package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/grange-project/grange/api"
)

var errorCode = regexp.MustCompile(`(?m)\[([a-z-]+)\]$`)

// add runs `grange image add NAME ...`; the code is that of its error.
func (t *trial) add(ctx context.Context, name string, args ...string) (i api.Image, code string, err error) {
	cmd := t.lab.Grange(ctx, append([]string{"image", "add", "--json", name}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		text := complaint.String()
		if found := errorCode.FindStringSubmatch(text); found != nil {
			code = found[1]
		}
		return i, code, fmt.Errorf("%w: %s", err, text)
	}
	return i, "", json.Unmarshal(out, &i)
}

func (t *trial) remove(ctx context.Context, name string) error {
	if out, err := t.lab.Grange(ctx, "image", "remove", name).CombinedOutput(); err != nil {
		return fmt.Errorf("remove %s: %w: %s", name, err, out)
	}
	return nil
}

// sources adds the disk from each kind of source, in each form.
func (t *trial) sources(ctx context.Context) {
	dir, url := t.files.dir, t.web.url
	key := filepath.Join(dir, "publisher.gpg")
	sums, signature := url+"/SHA256SUMS", url+"/SHA256SUMS.gpg"
	forms := map[string][]string{
		"a path":               {dir + "/disk.raw"},
		"a file URL":           {"file://" + dir + "/disk.raw"},
		"busybox httpd":        {url + "/disk.raw"},
		"nginx":                {t.web.nginx + "/disk.raw", "--sums", t.web.nginx + "/SHA256SUMS"},
		"a checksum":           {url + "/disk.raw", "--sha", t.files.digest},
		"a list of checksums":  {url + "/disk.raw", "--sums", sums},
		"a list at a path":     {url + "/disk.raw", "--sums", dir + "/SHA256SUMS"},
		"a signed list":        {url + "/disk.raw", "--sums", sums, "--signature", signature, "--keyring", key},
		"a clear-signed list":  {url + "/disk.raw", "--sums", url + "/CHECKSUM", "--keyring", key},
		"broken connections":   {t.web.odd + "/broken/disk.raw", "--sha", t.files.digest},
		"gzip":                 {url + "/disk.raw.gz", "--sums", sums},
		"xz":                   {url + "/disk.raw.xz"},
		"zstd":                 {url + "/disk.raw.zst"},
		"qcow2":                {url + "/disk.qcow2"},
		"vmdk":                 {url + "/disk.vmdk"},
		"vhdx":                 {url + "/disk.vhdx"},
		"vdi":                  {url + "/disk.vdi"},
		"vpc":                  {url + "/disk.vpc"},
		"vmdk in gzip":         {url + "/disk.vmdk.gz"},
		"simplestreams, nginx": {"simplestreams+" + t.web.nginx + "/#" + product},
		"simplestreams":        {"simplestreams+" + url + "/#" + product},
		"simplestreams, typed": {"simplestreams+" + url + "/#" + product + "/disk-kvm.img"},
	}
	for name, args := range forms {
		t.result("source: "+name, t.source(ctx, args))
	}
}

// source adds, verifies, compares with the disk, and removes.
func (t *trial) source(ctx context.Context, args []string) error {
	i, _, err := t.add(ctx, "added", args...)
	if err != nil {
		return err
	}
	if out, err := t.lab.Grange(ctx, "image", "verify", "added").CombinedOutput(); err != nil {
		return fmt.Errorf("verify: %w: %s", err, out)
	}
	format := "raw"
	if i.Digest != "sha256:"+t.files.digest {
		format = "qcow2"
	}
	disk := filepath.Join(t.lab.Dir, "state/images/images/added/disk."+format)
	if err := sameDisk(ctx, disk, filepath.Join(t.files.dir, "disk.raw"), format); err != nil {
		return err
	}
	return t.remove(ctx, "added")
}

// hostile: nothing of what must not come in does, and nothing of it stays.
func (t *trial) hostile(ctx context.Context) {
	dir, url := t.files.dir, t.web.url
	signed := []string{url + "/disk.raw", "--sums", url + "/SHA256SUMS", "--signature", url + "/SHA256SUMS.gpg"}
	for name, c := range map[string]struct {
		codes string // any of these
		args  []string
	}{
		"a backing file":            {"bad-image", []string{url + "/backed.qcow2"}},
		"a data file":               {"bad-image", []string{url + "/outside.qcow2"}},
		"cut short":                 {"bad-image", []string{url + "/short.qcow2"}},
		"cut short, packed":         {"bad-image", []string{url + "/short.gz"}},
		"packed twice":              {"bad-image", []string{url + "/twice.gz"}},
		"zeros without end":         {"bad-image", []string{url + "/zeros.gz"}},
		"a bomb":                    {"disk-full", []string{url + "/bomb.gz"}},
		"extents of other files":    {"bad-image", []string{url + "/extent.vmdk"}},
		"noise":                     {"bad-image", []string{url + "/noise"}},
		"another checksum":          {"image-unverified", []string{url + "/disk.raw", "--sha", strings.Repeat("0", 64)}},
		"another list":              {"image-unverified", []string{url + "/disk.raw", "--sums", url + "/WRONGSUMS"}},
		"a list without it":         {"image-unverified", []string{url + "/noise", "--sums", url + "/SHA256SUMS"}},
		"signed by a stranger":      {"image-unverified", append(slices.Clone(signed), "--keyring", dir+"/stranger.gpg")},
		"not signed":                {"image-unverified", append(slices.Clone(signed[:3]), "--keyring", dir+"/publisher.gpg")},
		"a signature without a key": {"usage", signed},
		"not there":                 {"image-source", []string{url + "/nothing"}},
		"a directory":               {"image-source", []string{dir}},
		"a pipe":                    {"image-source", []string{"/dev/zero"}},
		"a circle":                  {"image-source", []string{t.web.odd + "/circle/x"}},
		"without end":               {"image-too-big disk-full", []string{t.web.odd + "/endless"}},
		"too large":                 {"image-too-big", []string{t.web.odd + "/large"}},
		"no product":                {"image-source", []string{"simplestreams+" + url + "/#org.example:99:amd64"}},
		"no scheme":                 {"bad-image-source", []string{"ftp://127.0.0.1/disk.raw"}},
		"a password":                {"bad-image-source", []string{"http://root:secret@127.0.0.1/disk.raw"}},
	} {
		t.result("refused: "+name, t.refused(ctx, c.args, strings.Fields(c.codes)))
	}
}

func (t *trial) refused(ctx context.Context, args, codes []string) error {
	i, code, err := t.add(ctx, "refused", args...)
	if err == nil {
		return errors.Join(fmt.Errorf("taken: %s", i.Digest), t.remove(ctx, "refused"))
	}
	if !slices.Contains(codes, code) {
		return fmt.Errorf("code %q, not %q: %w", code, codes, err)
	}
	if left := t.left(); len(left) > 0 && code != "image-source" && code != "disk-full" {
		return fmt.Errorf("left: %q", left)
	}
	return t.emptyPartial()
}

// emptyPartial removes downloads that could be continued.
func (t *trial) emptyPartial() error {
	dir := filepath.Join(t.lab.Dir, "state/images/partial")
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
}

// kills ends the agent at each step of an addition, and repeats what it was doing with the next one.
func (t *trial) kills(ctx context.Context) {
	for _, form := range []string{"disk.raw", "disk.raw.xz", "disk.vhdx"} {
		for _, step := range []string{"downloading", "download: 30 %", "download: 100 %", "verifying", "importing"} {
			args := []string{t.web.odd + "/slow/" + form, "--sums", t.web.url + "/SHA256SUMS"}
			t.result(fmt.Sprintf("killed: %s, %s", form, step), t.killed(ctx, args, step))
		}
	}
}

func (t *trial) killed(ctx context.Context, args []string, step string) error {
	cmd := t.lab.Grange(ctx, append([]string{"image", "add", "killed"}, args...)...)
	messages, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	met := false
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		if !met && strings.HasPrefix(lines.Text(), step) {
			met = true
			t.lab.KillAgent()
		}
	}
	failed := cmd.Wait() != nil
	if !met {
		return fmt.Errorf("no step %q", step)
	}
	t.Kills++
	if err := t.lab.StartAgent(ctx); err != nil {
		return err
	}
	if !failed { // it was over by then
		return t.remove(ctx, "killed")
	}
	if _, _, err := t.add(ctx, "killed", args...); err != nil {
		return err
	}
	if err := t.remove(ctx, "killed"); err != nil {
		return err
	}
	if left := t.left(); len(left) > 0 {
		return fmt.Errorf("left: %q", left)
	}
	return nil
}

// cycles adds and removes many times, from each kind of place in turn.
func (t *trial) cycles(ctx context.Context, forms ...string) {
	small := filepath.Join(t.files.dir, "small.raw")
	if err := os.WriteFile(small, append(make([]byte, 510), "\x55\xaa"...), 0o644); err != nil {
		t.result("cycles", err)
		return
	}
	forms = append(forms, small)
	before := t.agentFiles()
	for n := range t.Cycles {
		if _, _, err := t.add(ctx, "cycle", forms[n%len(forms)]); err != nil {
			t.result(fmt.Sprintf("cycle %d", n), err)
			return
		}
		if err := t.remove(ctx, "cycle"); err != nil {
			t.result(fmt.Sprintf("cycle %d", n), err)
			return
		}
	}
	const more = 8 // idle connections
	if after := t.agentFiles(); after > before+more {
		t.result("cycles", fmt.Errorf("the agent has %d open files, had %d", after, before))
		return
	}
	t.result(fmt.Sprintf("%d cycles", t.Cycles), nil)
}

// agentFiles is how many files the agent has open.
func (t *trial) agentFiles() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", t.lab.AgentPID()))
	return len(entries)
}
