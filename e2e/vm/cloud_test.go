package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hyper/libvirt"
)

// What a process of this test in the hosts' network is told.
const (
	cloudConfigVar = "GRANGE_TEST_CLOUD_CONFIG" // path of the agent's configuration
	cloudKeyVar    = "GRANGE_TEST_CLOUD_KEY"    // path of an SSH key
)

// TestCloudVM makes a cloud VM of the micro image on a bridge in a network of the test's own. The agent runs in a
// process there, without a server: what a server would want is told to it.
func TestCloudVM(t *testing.T) {
	if os.Getenv(cloudConfigVar) != "" {
		testCloudVM(t)
		return
	}
	peer := newNetwork(t, "peer")
	network := newNetwork(t, "cloud", "link add br0 type bridge", "addr add 10.77.0.1/16 dev br0", "link set br0 up",
		"link add eno2 type veth peer name eno2 netns "+peer, "addr add 192.0.2.1/24 dev eno2", "link set eno2 up")
	joinOverlay(t, peer)
	t.Parallel()
	cloudLab(t, network, "[network.overlay]\nlocal = \"192.0.2.1\"\npeers = [\"192.0.2.2\"]\nvnis = \"7001\"\n",
		[]string{overlayPeerVar + "=" + peer}, "build", "cloud")
}

// TestDebianImageCloud makes one of a full image, with cloud-init and an SSH server of its own.
func TestDebianImageCloud(t *testing.T) {
	if os.Getenv(cloudConfigVar) != "" {
		testDebianCloud(t)
		return
	}
	if os.Getenv("GRANGE_SLOW") == "" {
		t.Skip("takes minutes; GRANGE_SLOW=1 runs it")
	}
	disk := os.Getenv("GRANGE_TEST_DEBIAN_SSH") // one that was built before
	if disk == "" {
		disk = builtDisk(t, "kind = \"debian\"\npackages = [\"openssh-server\"]")
	}
	t.Parallel()
	network := newNetwork(t, "cloud", "link add br0 type bridge", "addr add 10.77.0.1/16 dev br0", "link set br0 up")
	cloudLab(t, network, "", nil, "import", "--name", "cloud", disk)
}

// networks are those that were made: tests with a host of their own run beside each other.
var networks atomic.Int64

// newNetwork makes a network namespace, with links by commands of ip(8), and returns its name.
func newNetwork(t *testing.T, name string, links ...string) string {
	t.Helper()
	network := fmt.Sprintf("grange%s%d.%d", name, os.Getpid(), networks.Add(1))
	command(t, "/usr/sbin/ip", "netns", "add", network)
	t.Cleanup(func() {
		if out, err := exec.Command("/usr/sbin/ip", "netns", "del", network).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	for _, args := range append([]string{"link set lo up"}, links...) {
		command(t, append([]string{"/usr/sbin/ip", "-n", network}, strings.Fields(args)...)...)
	}
	return network
}

// otherHost is a host beside the shared one, with the programs of that one.
func otherHost(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Programs = filepath.Join(host.Dir, "bin")
	l, err := lab.Start(ctx(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", l.AgentLog())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// cloudLab makes a host in a network, with an image by a command of `grange image`, and runs the test there, with
// variables.
func cloudLab(t *testing.T, network, config string, variables []string, image ...string) {
	key := filepath.Join(t.TempDir(), "key")
	command(t, "/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key)
	l := otherHost(t, lab.Options{Network: "/run/netns/" + network, NoImage: true, Config: config})
	run(t, l.Grange(ctx(t), append([]string{"image"}, image...)...), "").wantCode(t, 0)
	l.KillAgent()                                            // the one inside takes its place
	all, cancel := context.WithTimeout(t.Context(), 3*limit) // of several starts, each within the limit
	defer cancel()
	inside := exec.CommandContext(all, "/usr/bin/nsenter", "--net=/run/netns/"+network, "--", os.Args[0], "-test.v",
		"-test.run=^"+t.Name()+"$")
	inside.Env = append(append(os.Environ(), cloudConfigVar+"="+l.Config, cloudKeyVar+"="+key), variables...)
	r := run(t, inside, "")
	if r.code != 0 {
		t.Errorf("inside: status %d\n%s\n%s", r.code, r.out, r.errors)
	}
	t.Log(r.out)
	for _, pid := range l.QEMUs() {
		t.Errorf("QEMU %d is left", pid)
	}
}

// command runs a program that must succeed.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	r := run(t, exec.CommandContext(t.Context(), argv[0], argv[1:]...), "")
	if r.code != 0 {
		t.Fatalf("%v: status %d\n%s%s", argv, r.code, r.out, r.errors)
	}
	return r.out
}

// cloudHost is an agent in this process.
type cloudHost struct {
	*agent.Agent
	vm fleet.WantedVM
}

func startCloudHost(t *testing.T) *cloudHost {
	t.Helper()
	c, err := config.ReadAgent(os.Getenv(cloudConfigVar))
	if err != nil {
		t.Fatal(err)
	}
	c.GuestFile = filepath.Join(filepath.Dir(os.Getenv(cloudConfigVar)), "bin", "grange-guest")
	driver, err := libvirt.New(libvirt.Config{Socket: c.Libvirt, RunDir: c.RunDir,
		Accelerator: libvirt.Accelerator(c.Accelerator)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Config: c, Hypervisor: driver,
		Accelerator: func() string { return c.Accelerator }, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-a.Cloud.Recovered():
	case err := <-ended:
		t.Fatal(err)
	}
	return &cloudHost{Agent: a}
}

// want changes the one VM, and waits until the host says that it is so.
func (h *cloudHost) want(t *testing.T, change func(w *fleet.WantedVM), so func(o fleet.Observed) bool) {
	t.Helper()
	change(&h.vm)
	h.Cloud.Want(fleet.WantedList{VMs: []fleet.WantedVM{h.vm}})
	limit := time.After(limit)
	for {
		vms, changed := h.Cloud.Observed()
		if len(vms) == 1 && so(vms[0]) {
			return
		}
		if len(vms) == 1 && vms[0].State == "failed" {
			t.Fatalf("the VM failed: %s", vms[0].Reason)
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("never seen; last %+v", vms)
		}
	}
}

func (h *cloudHost) ssh(t *testing.T, program string, args ...string) string {
	t.Helper()
	options := []string{"-i", os.Getenv(cloudKeyVar), "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o",
		"LogLevel=ERROR", "-o", "StrictHostKeyChecking=accept-new", "-o",
		"UserKnownHostsFile=" + os.Getenv(cloudKeyVar) + ".known"}
	return command(t, slices.Concat([]string{program}, options, args)...)
}

const cloudAddress = "10.77.1.7"

// What the host says of a VM that is as wanted.
func isUp(o fleet.Observed) bool   { return o.State == "running" && o.Ready }
func isOff(o fleet.Observed) bool  { return o.State == "stopped" }
func isGone(o fleet.Observed) bool { return o.State == "gone" }

// power changes what is wanted.
func power(to string) func(*fleet.WantedVM) { return func(w *fleet.WantedVM) { w.Power = to } }

// name names a VM that has all that a VM can have, and that nobody wants yet.
func (h *cloudHost) name(t *testing.T, memory farm.Bytes, userData string) {
	t.Helper()
	key, err := os.ReadFile(os.Getenv(cloudKeyVar) + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	h.vm = fleet.WantedVM{ID: api.NewID(), Name: "web", Project: "atlas", Owner: "ann", Cell: "b3", Power: "on",
		Image: "cloud", Shape: fleet.Shape{CPUs: 1, Memory: uint64(memory), Scratch: 64 << 20}, Bridge: "br0",
		Address: cloudAddress + "/16", MAC: "52:54:0a:4d:01:07", Hostname: "web.example.org",
		Keys: []string{strings.TrimSpace(string(key))}, UserData: []byte(userData)}
}

func testCloudVM(t *testing.T) {
	h := startCloudHost(t)
	h.name(t, 256*farm.MiB, "#!/bin/sh\necho start >>/tmp/starts\necho user data of $(hostname)\n")
	h.want(t, power("on"), isUp)
	t.Run("port", h.port)
	t.Run("ssh", func(t *testing.T) {
		got := h.ssh(t, "/usr/bin/ssh", "root@"+cloudAddress,
			"hostname; cd /; wget -qO- http://169.254.169.254/latest/meta-data/instance-id; echo; "+
				"wget -qO- http://169.254.169.254/latest/meta-data/placement/availability-zone; echo; cat /tmp/starts")
		if want := "web.example.org\n" + h.vm.ID + "\nb3\nstart\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		got = h.ssh(t, "/usr/bin/ssh", "root@"+cloudAddress,
			"for p in latest/meta-data/ latest/user-data grange/v1/vm; do wget -qO- http://169.254.169.254/$p; done")
		for _, want := range []string{"instance-id\ninstance-type\n", string(h.vm.UserData),
			`"hostname": "web.example.org"`} {
			if !strings.Contains(got, want) {
				t.Errorf("metadata lacks %q: %q", want, got)
			}
		}
		h.ssh(t, "/usr/bin/scp", "/etc/debian_version", "root@"+cloudAddress+":/tmp/copied")
	})
	t.Run("console", h.console)
	h.want(t, power("off"), isOff)
	h.want(t, power("on"), isUp)
	t.Run("second start", func(t *testing.T) { // ssh would refuse another host key
		h.awaitSSH(t)
		if got := h.ssh(t, "/usr/bin/ssh", "root@"+cloudAddress,
			"cat /tmp/starts; ls /tmp/copied"); got != "start\nstart\n/tmp/copied\n" {
			t.Errorf("after a second start: %q", got)
		}
	})
	t.Run("reboot", func(t *testing.T) { // of the guest's own will: its machine stays, and it is told all again
		h.ssh(t, "/usr/bin/ssh", "root@"+cloudAddress, "(sleep 1; reboot) >/dev/null 2>&1 &")
		s, err := h.Cloud.Stream(t.Context(), fleet.StreamOrder{VM: h.vm.ID, Kind: fleet.StreamConsole})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		again := newConsoleText(s)
		again.await(t, "reboot: Restarting system")
		again.awaitTimes(t, "user data: ended with status 0", 2)
		h.awaitSSH(t) // which begins beside the script
		if got := h.ssh(t, "/usr/bin/ssh", "root@"+cloudAddress, "wc -l </tmp/starts"); got != "3\n" {
			t.Errorf("after a reboot: %q starts", got)
		}
	})
	h.want(t, power("deleted"), isGone)
	t.Run("overlay", h.overlay)
}

// askMetadata is a client for where there is neither wget nor curl.
const askMetadata = `exec 3<>/dev/tcp/169.254.169.254/80; printf 'GET /latest/meta-data/instance-id HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`

func testDebianCloud(t *testing.T) {
	h := startCloudHost(t)
	h.name(t, farm.GiB, "#cloud-config\nbootcmd: [[sh, -c, 'echo boot >>/var/boots']]\nruncmd: [[sh, -c, "+
		"'echo build >>/var/builds']]\n")
	h.want(t, power("on"), isUp)
	look := func(t *testing.T, want string) {
		t.Helper()
		h.awaitSSH(t)
		got := h.ssh(t, "/usr/bin/ssh", "debian@"+cloudAddress,
			"cloud-init status --wait >/dev/null; hostname -f; bash -c \""+askMetadata+"\"; echo; cat /var/boots "+
				"/var/builds | tr '\\n' ' '")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	const name = "web.example.org\n"
	look(t, name+h.vm.ID+"\nboot build ")
	h.want(t, power("off"), isOff)
	h.want(t, power("on"), isUp)
	look(t, name+h.vm.ID+"\nboot boot build ")
	// Fresh disks: cloud-init begins anew, and so do the keys of the SSH server.
	h.want(t, func(w *fleet.WantedVM) { w.Builds, w.Fresh = 1, 1 }, func(o fleet.Observed) bool {
		return isUp(o) &&
			o.Builds == 1
	})
	if err := os.Remove(os.Getenv(cloudKeyVar) + ".known"); err != nil {
		t.Error(err)
	}
	look(t, name+h.vm.ID+"\nboot build ")
	h.want(t, power("deleted"), isGone)
}

// awaitSSH waits for the greeting of the VM's SSH server: its guest is up before the server is.
func (h *cloudHost) awaitSSH(t *testing.T) string {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		s, err := h.Cloud.Stream(limit, fleet.StreamOrder{VM: h.vm.ID, Kind: fleet.StreamTCP, Port: 22})
		if err == nil {
			line, err := bufio.NewReader(s).ReadString('\n')
			s.Close()
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit.Done():
			t.Fatal(err)
		}
	}
}

func (h *cloudHost) port(t *testing.T) {
	if line := h.awaitSSH(t); !strings.HasPrefix(line, "SSH-2.0-") {
		t.Errorf("port 22 says %q", line)
	}
	if s, err := h.Cloud.Stream(t.Context(),
		fleet.StreamOrder{VM: h.vm.ID, Kind: fleet.StreamTCP, Port: 23}); err == nil {
		s.Close()
		t.Error("a stream to a port that nobody listens on")
	}
}

func (h *cloudHost) console(t *testing.T) {
	open := func() io.ReadWriteCloser {
		s, err := h.Cloud.Stream(t.Context(), fleet.StreamOrder{VM: h.vm.ID, Kind: fleet.StreamConsole})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := open(), open()
	defer second.Close()
	seen := newConsoleText(second)
	seen.await(t, "user data of web.example.org")
	seen.await(t, "host key SHA256:")
	if _, err := io.WriteString(first, "echo typed-$((40+2))\n"); err != nil {
		t.Fatal(err)
	}
	seen.await(t, "typed-42")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

// consoleText is all that a console has shown.
type consoleText struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newConsoleText(r io.Reader) *consoleText {
	c := &consoleText{changed: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			c.mu.Lock()
			c.text.Write(buf[:n])
			c.mu.Unlock()
			select {
			case c.changed <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *consoleText) await(t *testing.T, words string) {
	t.Helper()
	c.awaitTimes(t, words, 1)
}

// awaitTimes waits until the words were there that often.
func (c *consoleText) awaitTimes(t *testing.T, words string, often int) {
	t.Helper()
	limit := time.After(limit)
	for {
		c.mu.Lock()
		text := c.text.String()
		c.mu.Unlock()
		if strings.Count(text, words) >= often {
			return
		}
		select {
		case <-c.changed:
		case <-limit:
			t.Fatalf("the console never showed %q:\n%s", words, text)
		}
	}
}
