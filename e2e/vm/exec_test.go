package vm

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
)

// TestExec is what a command sees and gives back. Its commands share a VM.
func TestExec(t *testing.T) {
	vm := inOneVM(t, 61)
	for name, test := range map[string]func(*testing.T, *oneVM){
		"streams": execStreams, "any bytes": execCarriesAnyBytes, "order": execKeepsOrder,
		"every byte": execPassesEveryByte, "read-only bind": execBindsReadOnly, "files": bindFiles, "signals": signals,
		"ignored signals": ignoredSignals, "time limit": timeLimit, "broken output": brokenOutput, "terminal": terminal,
		"no directory": noDirectory,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, vm)
		})
	}
}

func execStreams(t *testing.T, vm *oneVM) {
	cases := []struct {
		name  string
		args  []string
		input string
		code  int
		out   string
		errs  string // part of stderr
	}{
		{name: "exit status", args: []string{"sh", "-c", "exit 7"}, code: 7},
		{name: "input reaches output", args: []string{"cat"}, input: "data\n", out: "data\n"},
		{name: "death by signal", args: []string{"sh", "-c", "kill -TERM $$"}, code: 143},
		{name: "death by kill", args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
		{name: "no such command", args: []string{"nosuch"}, code: 127, errs: "not found"},
		{name: "not executable", args: []string{"/etc/passwd"}, code: 126, errs: "not executable"},
		{name: "errors are a stream of their own", args: []string{"sh", "-c", "echo out; echo err >&2"}, out: "out\n",
			errs: "err\n"},
		{name: "arguments as they are", args: []string{"printf", "%s|", "a b", "", "$HOME", "'\"`", "ü\n"},
			out: "a b||$HOME|'\"`|ü\n|"},
		{name: "closed input", args: []string{"sh", "-c", "cat; echo end"}, out: "end\n"},
		{name: "a child that outlives the command", args: []string{"sh", "-c", "sleep 1000 & echo gone"},
			out: "gone\n"},
		{name: "its own name, and devices for all", args: []string{"sh", "-c",
			"grep -c \" $(hostname)$\" /etc/hosts; stat -c %a /dev/fuse /dev/tty"}, out: "1\n666\n666\n"},
		{name: "bash and job control", args: []string{"bash", "-c", "set -m; (exit 3) & wait %1; echo $?"}, out: "3\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, vm.exec(t, append([]string{"--"}, c.args...)...), c.input)
			r.want(t, c.code, c.out)
			if !strings.Contains(r.errors, c.errs) {
				t.Errorf("stderr %q lacks %q", r.errors, c.errs)
			}
		})
	}
}

// execCarriesAnyBytes has bytes that are not UTF-8 in an argument, a variable and the name of a bound directory.
func execCarriesAnyBytes(t *testing.T, vm *oneVM) {
	const odd = "caf\xe9"
	dir := filepath.Join(t.TempDir(), odd)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("in\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := vm.exec(t, "-q", "-n", "--env", "X="+odd, "--bind", ".", "--", "sh", "-c",
		`printf '%s,%s,%s,' "$1" "$X" "${PWD##*/}"; cat f`, "sh", odd)
	cmd.Dir = dir
	out, err := cmd.Output()
	if want := odd + "," + odd + "," + odd + ",in\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

// execKeepsOrder has output and errors be one pipe, as a shell's 2>&1 does.
func execKeepsOrder(t *testing.T, vm *oneVM) {
	cmd := vm.exec(t, "-q", "-n", "--", "sh", "-c",
		"cat; i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done")
	var both bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("nobody reads this\n"), &both, &both
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &both)
	}
	var want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	if both.String() != want.String() {
		t.Errorf("%q", &both)
	}
}

func execPassesEveryByte(t *testing.T, vm *oneVM) {
	data := make([]byte, 3<<20)
	rand.Read(data)
	cmd := vm.exec(t, "--quiet", "--", "sh", "-c", "tee /dev/stderr")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"stdout": out.Bytes(), "stderr": errs.Bytes()} {
		if sha256.Sum256(got) != sha256.Sum256(data) {
			t.Errorf("%s: %d bytes came back, not the %d that went in", name, len(got), len(data))
		}
	}
}

func execBindsReadOnly(t *testing.T, vm *oneVM) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16),
		0o644); err != nil {
		t.Fatal(err)
	}
	cmd := vm.exec(t, "--bind", ".:ro", "--", "sh", "-c",
		"pwd; sha256sum < file; (echo x > file) 2>/dev/null || echo refused; rm -f file 2>/dev/null; ls")
	cmd.Dir = dir
	sum := sha256.Sum256(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	run(t, cmd, "").want(t, 0, fmt.Sprintf("%s\n%x  -\nrefused\nfile\n", dir, sum))
}

// TestExecIsTheCaller runs as an ordinary user: identity, groups, environment, bound directory.
func TestExecIsTheCaller(t *testing.T) {
	dir := t.TempDir()
	openUp(t, dir)
	const uid, gid, group = 12345, 12346, 12347
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	script :=
		`id -u; id -g; id -G; pwd; echo $MINE; echo $HOME; echo text > made; mkdir sub; mv made sub/; ln -s sub/made link; cat link; stat -c %u:%g sub`
	cmd := host.Exec(ctx(t), "--bind", dir+":/data", "--env", "MINE=a b", "--workdir", "/data", "--", "sh",
		"-c", script)
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, "HOME=/home/somebody")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid,
		Groups: []uint32{gid, group}}}
	run(t, cmd, "").want(t, 0, "12345\n12346\n12346 12347\n/data\na b\n/home/somebody\ntext\n12345:12346\n")
	info, err := os.Stat(filepath.Join(dir, "sub", "made"))
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != uid || s.Gid != gid {
		t.Errorf("the file belongs to %d:%d on the host, want %d:%d", s.Uid, s.Gid, uid, gid)
	}
}

// TestExecRaisesNobody lets root of the VM try what its caller may not do on the host.
func TestExecRaisesNobody(t *testing.T) {
	dir := t.TempDir()
	openUp(t, dir)
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil { // root's
		t.Fatal(err)
	}
	cmd := host.Exec(ctx(t), "--bind", dir, "--workdir", "/", "--", "sh", "-c",
		"cat "+secret+"; rm "+secret+"; touch "+dir+"/new; echo $?")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	cmd.Dir = "/"
	run(t, cmd, "").want(t, 0, "1\n")
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}

// TestExecOptions: what a VM was asked to have it has: facts of its host, scratch that ends, a network.
func TestExecOptions(t *testing.T) {
	r := grange(t, "--memory", "512M", "--scratch", "64M", "--network", "user", "--", "sh", "-c",
		"echo $GRANGE_HS06 $GRANGE_CPUS $GRANGE_MEMORY; grep -c HOST_CPU_FLAGS=.*sse2 /etc/grange/host;"+
			`grep -q " /tmp ext4 " /proc/mounts && echo mounted; stat -c %a /tmp;`+
			`dd if=/dev/zero of=/tmp/big bs=1M count=100 2>&1 | grep -c "No space";`+
			"basename $(readlink /sys/class/net/eth0/device/driver); ip -4 addr show eth0 | grep -c 10.0.2.15;"+
			"ip route | grep -c default")
	r.want(t, 0, "357 1 512\n1\nmounted\n1777\n1\nvirtio_net\n1\n1\n")
}

// TestExecShape compares what the guest sees with what was planned.
func TestExecShape(t *testing.T) {
	j, input := startWithInput(t, "--shape", "wide", "--", "sh", "-c", "echo up; read go; lscpu")
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 {
		t.Fatal(vms, err)
	}
	fmt.Fprintln(input, "go")
	out := j.finish(t).out
	p := vms[0].Plan
	for key, want := range map[string]int{"CPU(s)": 2, "Socket(s)": p.Sockets, "Core(s) per socket": p.Cores,
		"Thread(s) per core": p.Threads, "NUMA node(s)": len(p.Cells)} {
		if !hasField(out, key, fmt.Sprint(want)) {
			t.Errorf("lscpu does not say %s: %d\n%s", key, want, out)
		}
	}
}

func hasField(text, key, value string) bool {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key && strings.TrimSpace(v) == value {
			return true
		}
	}
	return false
}

// TestExecPurpose starts a VM tuned as a service, whose disk goes past the host's page cache, with words on top of its
// purpose.
func TestExecPurpose(t *testing.T) {
	start(t, host, "--purpose", "service", "--cpu-model", "Haswell", "--scratch", "64M", "--page-size", "1G,0",
		"--numa", "none", "--thread-policy", "isolate", "--emulator", "isolate", "--", "sh", "-c",
		"dd if=/dev/zero of=/tmp/x bs=1M count=4 2>&1 && sync && echo up; sleep 1000")
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) != 1 {
		t.Fatalf("%+v, %v", vms, err)
	}
	if x := vms[0].Applied; x.Purpose != "service" || x.Cache != "none" || x.IO != "native" ||
		lab.Accelerator() == "tcg" && !strings.Contains(strings.Join(x.Warnings, "\n"), "instead of model Haswell") {
		t.Errorf("applied: %+v", x)
	}
	if p := vms[0].Plan; p.Extra == "" || p.Emulator == p.VCPUs[0] {
		t.Errorf("the emulator has no CPU of its own: %+v", p)
	}
	text, err := host.Virsh(ctx(t), "dumpxml", vms[0].Name)
	if err != nil || !strings.Contains(text, "cache='none'") || !strings.Contains(text, "io='native'") ||
		!strings.Contains(text, "nosharepages") {
		t.Errorf("%v\n%s", err, text)
	}
	if r := run(t, host.Grange(ctx(t), "vm", "show", vms[0].Name), ""); !strings.Contains(r.out,
		"cache none, I/O by native") || !strings.Contains(r.out, "service") {
		t.Errorf("vm show hides what was applied:\n%s%s", r.out, r.errors)
	}
	for _, args := range [][]string{{"--purpose", "fun"}, {"--page-size", "3M,2M"}, {"--numa", "many"},
		{"--cpu-model", "a b"}, {"--cache", "much"}} {
		if r := grange(t, append(args, "--", "true")...); r.code != 2 || !strings.Contains(r.errors, "try:") {
			t.Errorf("%v: status %d, want 2: %s", args, r.code, r.errors)
		}
	}
}
