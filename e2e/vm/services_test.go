package vm

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/guest"
)

// serviceScript runs in a VM without a network. Its first connection ends with the agent.
const serviceScript = `
set -e
test "$PROXY" = http://127.0.0.1:3128
echo $GRANGE_SERVICES; grep ^SERVICES= /etc/grange/host
head -c 10000000 /dev/urandom > /tmp/f
exec 3<>/dev/tcp/127.0.0.1/3128
cat /tmp/f >&3 &
head -c 10000000 <&3 | cmp - /tmp/f && echo same
wait
exec 4<>/dev/tcp/::1/3128; echo six >&4; head -n 1 <&4
if (exec 5<>/dev/tcp/127.0.0.1/22) 2>/dev/null; then echo more than is declared; fi
(exec 6<>/dev/tcp/127.0.0.1/5432; head -c 1 <&6) 2>/dev/null | grep -q . && echo from whom; echo down
exec 7<>/dev/tcp/127.0.0.1/9
t=${EPOCHREALTIME/./}; s=$(head -c 50000000 <&7 | wc -c); echo "$s bytes in: $((${EPOCHREALTIME/./} - t)) us" >&2
exec 9<>/dev/tcp/127.0.0.1/10
t=${EPOCHREALTIME/./}; head -c 50000000 /dev/zero >&9; read s <&9; echo "$s bytes out: $((${EPOCHREALTIME/./} - t)) us" >&2
echo up
cat <&3 2>/dev/null || true
again() { exec 8<>/dev/tcp/127.0.0.1/3128 && echo anew >&8 && head -n 1 <&8 | grep anew; }
until (again) 2>/dev/null; do sleep 0.2; done
`

// TestServices: a VM without a network reaches what is declared on its host, also after the agent was killed, and
// nothing else; `host show` says what answers.
func TestServices(t *testing.T) {
	dir, err := os.MkdirTemp("", "grange-services")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listen := func(network, at string, serve func(net.Conn)) string {
		l, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { serve(c); c.Close() }()
			}
		}()
		return l.Addr().String()
	}
	echo := listen("unix", filepath.Join(dir, "echo"), func(c net.Conn) { io.Copy(c, c) })
	for path, mode := range map[string]os.FileMode{dir: 0o755, echo: 0o666} { // the agent connects as nobody
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	source := listen("tcp", "127.0.0.1:0", func(c net.Conn) {
		for zeros := make([]byte, 1<<16); ; {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	sink := listen("tcp", "127.0.0.1:0", func(c net.Conn) {
		n, _ := io.CopyN(io.Discard, c, 50_000_000)
		fmt.Fprintln(c, n)
	})
	config := fmt.Sprintf(`
[services.echo]
connect = %q
port = 3128
variables = { PROXY = "http://{address}:{port}" }
[services.source]
connect = %q
port = 9
[services.sink]
connect = %q
port = 10
[services.db]
connect = %q
port = 5432
[services.other]
connect = %q
port = 22
users = ["nobody"]
`, echo, source, sink, filepath.Join(dir, "none"), echo)
	defer reload(t, testConfig, "configuration reloaded")
	reload(t, config, "configuration reloaded")
	j := launch(t, host.Exec(ctx(t), "-v", "--memory", "512M", "--", "bash", "-c", serviceScript))
	const all = "db=127.0.0.1:5432 echo=127.0.0.1:3128 sink=127.0.0.1:10 source=127.0.0.1:9"
	for _, line := range []string{all, "SERVICES=" + all, "same", "six", "down", "up"} {
		j.expect(t, line)
	}
	shown := run(t, host.Grange(ctx(t), "host", "show"), "").out
	for _, want := range []string{"service echo: port 3128 in VMs, " + echo + " here; answers",
		"service db: port 5432 in VMs, " + filepath.Join(dir, "none") + " here; does not answer"} {
		if !strings.Contains(shown, want) {
			t.Errorf("host show does not say %q:\n%s", want, shown)
		}
	}
	if out := run(t, host.Grange(ctx(t), "vm", "show", vmName(t)), "").out; !strings.Contains(out, "service") {
		t.Errorf("vm show names no service:\n%s", out)
	}
	ports, _ := filepath.Glob(filepath.Join(host.Dir, "run/vm/*/"+guest.ServicePort))
	if len(ports) != 1 {
		t.Fatalf("the VM's service ports are %q", ports)
	}
	if info, err := os.Stat(ports[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may connect to the VM's service port: %v, %v", info, err)
	}
	host.KillAgent()
	time.Sleep(100 * time.Millisecond)
	if err := host.StartAgent(ctx(t)); err != nil {
		t.Fatal(err)
	}
	j.expect(t, "anew")
	r := j.finish(t)
	if r.code != 0 || !strings.Contains(r.errors, "service echo") || strings.Contains(r.errors, "service other") {
		t.Errorf("status %d: %s", r.code, r.errors)
	}
	t.Log(r.errors)
}
