package hostfacts_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/hosttree"
)

// record records a tree and opens the recording.
func record(t *testing.T, tree *hosttree.Tree, anonymous bool) *hosttree.Tree {
	t.Helper()
	file := filepath.Join(t.TempDir(), "host.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := hostfacts.Record(tree, tree.Live, anonymous, f, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	out, err := hosttree.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// facts reads all that commands read of a host.
func facts(t *testing.T, tree *hosttree.Tree) (farm.HostFacts, hostfacts.Machines) {
	t.Helper()
	h, err := hostfacts.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	m, err := hostfacts.ReadMachines(tree, h.Domains, tree.Live)
	if err != nil {
		t.Fatal(err)
	}
	return h, m
}

func TestRecordingSaysWhatTheHostSays(t *testing.T) {
	var hosts []string
	for _, pattern := range []string{"../tuning/testdata/hosts/*.txtar", "../topology/testdata/*.tar.bz2"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		hosts = append(hosts, found...)
	}
	for _, path := range hosts {
		t.Run(filepath.Base(path), func(t *testing.T) {
			sameAfterRecording(t, open(t, path))
		})
	}
}

// The cases of the pin proof hold processes; each lies over a host.
func TestRecordingKeepsProcesses(t *testing.T) {
	const dir = "../tuning/verify/testdata/"
	cases, err := filepath.Glob(dir + "*.txtar")
	if err != nil || len(cases) < 2 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, path := range cases {
		if filepath.Base(path) == "host.txtar" {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			top := over(t, open(t, path).FS, fstest.MapFS{}).(fstest.MapFS)
			tree := &hosttree.Tree{FS: over(t, open(t, dir+"host.txtar").FS, top), Name: path}
			if m := sameAfterRecording(t, tree); len(m.Processes)+len(m.Unseen) == 0 {
				t.Error("the case has no process")
			}
		})
	}
}

func open(t *testing.T, path string) *hosttree.Tree {
	t.Helper()
	tree, err := hosttree.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func sameAfterRecording(t *testing.T, tree *hosttree.Tree) hostfacts.Machines {
	t.Helper()
	wantHost, wantVMs := facts(t, tree)
	gotHost, gotVMs := facts(t, record(t, tree, false))
	if d := cmp.Diff(wantHost, gotHost); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(wantVMs, gotVMs); d != "" {
		t.Error(d)
	}
	return gotVMs
}

func TestRecordingOfThisHost(t *testing.T) {
	tree, err := hosttree.Live(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	got, _ := facts(t, record(t, tree, false))
	want, _ := facts(t, tree)
	if d := cmp.Diff(want.Topology.Cores, got.Topology.Cores); d != "" || got.Versions != want.Versions ||
		got.Kernel.Release != want.Kernel.Release {
		t.Errorf("%s\nversions %v, want %v; kernel %v, want %v", d, got.Versions, want.Versions, got.Kernel.Release,
			want.Kernel.Release)
	}
}

// A QEMU whose threads are not to be seen stays in the recording of a recording, without secrets.
func TestRecordingKeepsUnseen(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	tree := &hosttree.Tree{Name: "unseen", FS: over(t, open(t, "../tuning/testdata/hosts/cern-2015-before.txtar").FS,
		fstest.MapFS{
			"proc/77/cmdline": file("/usr/bin/qemu-system-x86_64\x00-name\x00guest=web\x00-vnc\x00s3cret\x00"),
			"proc/77/comm":    file("qemu-system-x86\n"),
		})}
	copied := record(t, tree, false)
	_, m := facts(t, copied)
	if len(m.Unseen) != 2 || m.Unseen[0].Name != "web" || m.Unseen[0].PID != 77 ||
		m.Unseen[1].Name != "instance-0001e240" {
		t.Errorf("unseen: %+v", m.Unseen)
	}
	for name, want := range map[string]string{"proc/77/cmdline": "/usr/bin/qemu-system-x86_64\x00-name\x00guest=web\x00",
		"proc/77/comm": "qemu-system-x86\n"} {
		if got, err := fs.ReadFile(copied.FS, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

const domainWithSecrets = `<domstatus state='running' pid='77'>
  <domain type='kvm'>
    <name>payroll</name>
    <uuid>11111111-2222-4333-8444-555555555555</uuid>
    <title>s3cret title</title>
    <metadata>
      <libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0"><libosinfo:os id="http://debian.org/debian/12"/></libosinfo:libosinfo>
      <grange:vm xmlns:grange="https://grange.dev/xmlns/vm/1">RECORD</grange:vm>
      <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:owner>s3cret owner</nova:owner></nova:instance>
    </metadata>
    <memory unit='KiB'>1048576</memory>
    <vcpu placement='static'>2</vcpu>
    <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><cmdline>root=/dev/vda password=s3cret</cmdline></os>
    <devices>
      <disk type='network' device='disk'>
        <driver name='qemu' type='raw' cache='none'/>
        <auth username='s3cret'><secret type='ceph' uuid='s3cret'/></auth>
        <target dev='vda' bus='virtio'/>
      </disk>
      <interface type='bridge'><mac address='52:54:00:aa:bb:cc'/><model type='e1000'/></interface>
      <graphics type='vnc' port='5900' passwd='s3cret'/>
      <graphics type='spice' password="s3cret"/>
    </devices>
    <qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='s3cret'/></qemu:commandline>
    <launchSecurity type='sev'><session>s3cret</session></launchSecurity>
  </domain>
</domstatus>
`

// secretive is a host full of what must not leave it.
func secretive(t *testing.T) *hosttree.Tree {
	t.Helper()
	tree := open(t, "../tuning/testdata/hosts/cern-2015-before.txtar")
	plan := base64.StdEncoding.EncodeToString(
		[]byte(`{"User":"s3cret","Command":"s3cret --x","Plan":{"VCPUs":["0","1"],"Emulator":"2"}}`))
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return &hosttree.Tree{Name: "secretive", FS: over(t, tree.FS, fstest.MapFS{
		"run/libvirt/qemu/payroll.xml": file(strings.Replace(domainWithSecrets, "RECORD", plan, 1)),
		"proc/77/cmdline": file(
			"/usr/bin/qemu-system-x86_64\x00-name\x00guest=payroll,debug-threads=on\x00-object\x00secret,id=x,data=s3cret\x00-uuid\x0011111111-2222-4333-8444-555555555555\x00-vnc\x00s3cret\x00"),
		"proc/77/comm":           file("qemu-system-x86\n"),
		"proc/77/task/77/status": file("Name:\tqemu-system-x86\nState:\tS (sleeping)\nCpus_allowed_list:\t2\n"),
		"proc/88/cmdline":        file("mysql\x00--password=s3cret\x00"),
		"proc/88/comm":           file("s3cret-daemon\n"),
		"proc/cmdline":           file("ro quiet rd.luks.key=s3cret db_password=s3cret\n"),
		"etc/modprobe.d/x.conf":  file("options wifi token=s3cret\n"),
	})}
}

// over is a tree with some files put over it.
func over(t *testing.T, base fs.FS, files fstest.MapFS) fs.FS {
	t.Helper()
	err := fs.WalkDir(base, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || files[name] != nil {
			return err
		}
		data, err := fs.ReadFile(base, name)
		files[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRecordingHasNoSecrets(t *testing.T) {
	var b bytes.Buffer
	if _, err := hostfacts.Record(secretive(t), false, false, &b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(b.Bytes(), []byte("s3cret")); i >= 0 {
		t.Errorf("a secret is in the recording: …%q…", b.Bytes()[max(i-200, 0):min(i+20, b.Len())])
	}
	h, m := facts(t, record(t, secretive(t), false))
	d := h.Domains[len(h.Domains)-1]
	if d.Name != "payroll" || !d.Ours || d.OSInfo != "http://debian.org/debian/12" || len(d.NICs) != 1 ||
		d.NICs[0].Model != "e1000" || d.Disks[0].Cache != "none" {
		t.Errorf("the recorded VM is %+v", d)
	}
	if plan := m.Plans[d.UUID]; len(plan.VCPUs) != 2 || plan.Emulator.String() != "2" {
		t.Errorf("its plan is %+v", plan)
	}
	if len(m.Processes) != 1 || m.Processes[0].Name != "payroll" {
		t.Errorf("its processes are %+v", m.Processes)
	}
	if !strings.Contains(h.Kernel.Command, "ro quiet rd.luks.key=removed") {
		t.Errorf("the command line is %q", h.Kernel.Command)
	}
}

func TestAnonymousRecording(t *testing.T) {
	var b bytes.Buffer
	if _, err := hostfacts.Record(secretive(t), false, true, &b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"payroll", "instance-0001e240", "11111111-2222", "aa:bb:cc", "cern-2015"} {
		if bytes.Contains(b.Bytes(), []byte(name)) {
			t.Errorf("%s is in an anonymous recording", name)
		}
	}
	h, m := facts(t, record(t, secretive(t), true))
	last := h.Domains[len(h.Domains)-1]
	if h.Name != "host" || len(h.Domains) != 2 || len(m.Processes) != 1 || m.Processes[0].Name != last.Name ||
		m.Processes[0].UUID != last.UUID {
		t.Errorf("host %s, domains %+v, processes %+v", h.Name, h.Domains, m.Processes)
	}
}
