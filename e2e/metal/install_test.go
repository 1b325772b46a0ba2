package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// TestInstall looks at what `apt install`, `systemctl enable --now` and a first job left on a host, on each release of
// Debian, and then takes the packages off again.
func TestInstall(t *testing.T) {
	t.Parallel()
	for _, suite := range suites() {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			h := start(t, metallab.Options{Suite: suite})
			t.Run("journal", func(t *testing.T) { checkJournal(t, h) })
			t.Run("units", func(t *testing.T) { checkUnits(t, h) })
			t.Run("image", func(t *testing.T) { checkImage(t, h) })
			t.Run("hung", func(t *testing.T) { checkWatchdog(t, h) })
			t.Run("timers", func(t *testing.T) { checkTimers(t, h) })
			t.Run("remove", func(t *testing.T) { checkRemove(t, h) })
		})
	}
}

// awaiting begins scripts that wait, and gives up: what they wait for may fail.
const awaiting = `set -e
await() {
	n=0
	until eval "$1"; do n=$((n+1)); [ $n -lt 300 ] || { echo "not within five minutes: $1" >&2; exit 1; }; sleep 1; done
}
`

// checkJournal: no warnings, nothing that AppArmor denied, and a job that can be found by its fields.
func checkJournal(t *testing.T, h *metallab.Host) {
	if got := run(t, h, "journalctl -q --no-pager -b -u grange-agent -p warning --grep '^(?!.*it is given more "+
		"time)' || true"); got != "" {
		t.Errorf("warnings in the journal:\n%s", got)
	}
	if got := run(t, h, `journalctl -q --no-pager -b -k --grep 'apparmor="DENIED"' || true`); got != "" {
		t.Errorf("AppArmor denied:\n%s", got)
	}
	run(t, h, "grange exec -- true")
	over := run(t, h,
		`vm=$(journalctl -q -b -u grange-agent --grep '^job over' -o cat -n 1 | grep -o 'vm=[^ ]*'); journalctl -q -b VM="${vm#vm=}" USER=root -p info -o cat`)
	if !strings.Contains(over, "job over") || !strings.Contains(over, "user=root") {
		t.Errorf("by VM= and USER= the journal finds %q", over)
	}
	if got := run(t, h, "journalctl -q -b -u grange-agent -o cat -n 3"); strings.Contains(got, "level=") {
		t.Errorf("the journal has text of standard error:\n%s", got)
	}
}

// checkImage: the host builds an image of its own release's packages, and a job runs in it.
func checkImage(t *testing.T, h *metallab.Host) {
	long(t)
	run(t, h, "grange image build micro own && grange exec --image own -- true && grange image rm own")
}

// checkUnits: systemd finds no fault with them, and each setting of the unit is in force.
func checkUnits(t *testing.T, h *metallab.Host) {
	if got := run(t, h, "systemd-analyze verify grange-agent.service grange-tune-audit.timer "+
		"grange-tune-audit.service 2>&1 | grep -v \"'man \" || true"); got != "" {
		t.Errorf("systemd-analyze verify: %s", got)
	}
	got := run(t, h, "systemctl show grange-agent -p "+
		"Type,WatchdogUSec,NoNewPrivileges,ProtectSystem,ProtectKernelModules,Restart,KillMode,RuntimeDirectoryPreserve")
	for _, want := range []string{"Type=notify", "WatchdogUSec=1min", "NoNewPrivileges=yes", "ProtectSystem=full",
		"ProtectKernelModules=yes", "Restart=always", "KillMode=process", "RuntimeDirectoryPreserve=yes"} {
		if !strings.Contains("\n"+got+"\n", "\n"+want+"\n") {
			t.Errorf("not in force: %s", want)
		}
	}
	// What it took from itself it does not have.
	got = run(t, h, `pid=$(systemctl show -P MainPID grange-agent)
nsenter -m -t "$pid" sh -c 'touch /usr/x 2>&1; echo 1 >/proc/sys/vm/swappiness' 2>&1; grep NoNewPrivs /proc/"$pid"/status`)
	if strings.Count(got, "Read-only file system") != 2 || !strings.Contains(got, "NoNewPrivs:\t1") {
		t.Errorf("the agent may: %s", got)
	}
	// A service that systemd calls started answers at once: no waiting, no second try.
	run(t, h, "systemctl restart grange-agent && grange host show --json >/dev/null && systemctl reload grange-agent "+
		"&& grange host show --json >/dev/null")
}

// checkWatchdog: an agent that hangs is started again, and a VM under it goes on.
func checkWatchdog(t *testing.T, h *metallab.Host) {
	run(t, h, awaiting+`mkdir -p /run/systemd/system/grange-agent.service.d
printf '[Service]\nWatchdogSec=20s\n' >/run/systemd/system/grange-agent.service.d/test.conf
systemctl daemon-reload
systemctl restart grange-agent
cat >/root/hung.sh <<'END'
grange exec -- sh -c 'echo up; sleep 5; read line; echo "$line"; exit 7' <>/root/hung.in >/root/hung.out 2>/root/hung.err
echo $? >/root/hung.status
END
rm -f /root/hung.*[!h]; mkfifo /root/hung.in
systemd-run -q --unit=hung sh /root/hung.sh
await 'grep -q up /root/hung.out 2>/dev/null'
old=$(systemctl show -P MainPID grange-agent)
kill -STOP "$old"
await 'new=$(systemctl show -P MainPID grange-agent) && [ "$new" != "$old" ] && [ "$new" != 0 ] && systemctl -q is-active grange-agent'
echo hello >/root/hung.in
await '[ -s /root/hung.status ]'`)
	if got := run(t, h, "cat /root/hung.status /root/hung.out"); got != "7\nup\nhello" {
		t.Errorf("the job under the agent that hung: %q\n%s", got, run(t, h, "cat /root/hung.err"))
	}
	if got := run(t, h, "journalctl -q -b --no-pager -u grange-agent -o cat"); !strings.Contains(got,
		"Watchdog timeout") {
		t.Errorf("the watchdog is not in the journal:\n%s", got)
	}
	run(t, h, "rm -r /run/systemd/system/grange-agent.service.d && systemctl daemon-reload && systemctl restart "+
		"grange-agent")
}

// checkTimers: the audit's findings are in the journal with their priorities.
func checkTimers(t *testing.T, h *metallab.Host) {
	run(t, h, "systemctl enable -q --now grange-tune-audit.timer && systemctl -q is-active grange-tune-audit.timer; "+
		"systemctl start grange-tune-audit || true")
	status := run(t, h, "systemctl show -P ExecMainStatus grange-tune-audit")
	if status != "0" && status != "5" {
		t.Errorf("the audit ended with %s", status)
	}
	if got := run(t, h, "journalctl -q -b --no-pager -t grange-tune-audit -o cat -n 1"); !strings.Contains(got,
		"rules") {
		t.Errorf("the audit's last line is %q", got)
	}
	if got := run(t, h, "journalctl -q -b --no-pager -t grange-tune-audit -p warning -o cat"); strings.Contains(got,
		"ADVICE") || strings.Contains(got, "<") {
		t.Errorf("of priority warning is\n%s", got)
	}
}

// checkRemove: a VM goes on when the package goes, and one that comes again takes it over. After a purge nothing is
// left.
func checkRemove(t *testing.T, h *metallab.Host) {
	run(t, h, awaiting+`rm -f /root/kept.*; mkfifo /root/kept.in
cp /usr/bin/grange /root/grange-kept
systemd-run -q --unit=kept sh -c '/root/grange-kept exec -- sh -c "echo up; read line; exit 7" <>/root/kept.in >/root/kept.out 2>/root/kept.err; echo $? >/root/kept.status'
await 'grep -q up /root/kept.out 2>/dev/null'
DEBIAN_FRONTEND=noninteractive apt-get -q -y remove grange
! systemctl -q is-active grange-agent
test ! -e /usr/bin/grange
pgrep qemu >/root/kept.qemu
test -e /etc/grange/agent.toml
DEBIAN_FRONTEND=noninteractive apt-get -q -y install /root/packages/grange_*.deb
systemctl start grange-agent
pgrep qemu | cmp - /root/kept.qemu
echo go >/root/kept.in
await '[ -s /root/kept.status ]'
test "$(cat /root/kept.status)" = 7`)
	left := run(t, h, awaiting+`await '[ "$(grange vm list --json)" = '[]' ]'
DEBIAN_FRONTEND=noninteractive apt-get -q -y purge grange
for f in /etc/grange /var/lib/grange /run/grange /etc/systemd/system/*.wants/grange-* /usr/lib/grange /usr/share/doc/grange /etc/apparmor.d/*grange* \
	/etc/apparmor.d/libvirt/libvirt-[0-9a-f]*-* /etc/libvirt/qemu/grange-*; do
	[ ! -e "$f" ] || echo "$f"
done
virsh list --all --name | grep . || true
pgrep -a qemu || true`)
	_, left, _ = strings.Cut(left, "Purging configuration files")
	for line := range strings.Lines(left) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") || strings.HasPrefix(line, "grange-") ||
			strings.Contains(line, "qemu-system") {
			t.Errorf("purge leaves %s", line)
		}
	}
}

// TestUpgrade installs this build over that of the commit before it while a job runs: both are the real packages.
func TestUpgrade(t *testing.T) {
	long(t)
	t.Parallel()
	debs := agentDebs(t)
	old := earlierDebs(t, debs[0])
	h := startBare(t, metallab.Options{})
	if err := h.Install(t.Context(), old...); err != nil {
		t.Fatal(err)
	}
	startJob(t, h, "kept")
	before := run(t, h, qemus)
	if err := h.Copy(t.Context(), "/root", debs...); err != nil {
		t.Fatal(err)
	}
	run(t, h, "echo 'reserved_memory = \"1G\"' >>/etc/grange/agent.toml")
	// Versions of commits that were made in the same second say nothing of their order.
	run(t, h, fmt.Sprintf(`set -e
pid=$(systemctl show -P MainPID grange-agent) was=$(grange --version)
DEBIAN_FRONTEND=noninteractive apt-get -q -y --allow-downgrades install /root/%s
test "$(systemctl show -P MainPID grange-agent)" != "$pid"
test "$(grange --version)" != "$was"
grep -q '^reserved_memory' /etc/grange/agent.toml`, filepath.Base(debs[0])))
	if after := run(t, h, qemus); after != before {
		t.Errorf("QEMUs are %q, were %q", after, before)
	}
	endJob(t, h, "kept")
	run(t, h, "test $(grange exec -- sh -c 'echo $((6*7))') = 42")
	nothingLeft(t, h)
}

// builtOf is the commit in the name of a package.
var builtOf = regexp.MustCompile(`\.([0-9a-f]{12})[._]`)

// earlierDebs builds the agent's package of the commit before that of deb, which no clone without history has.
func earlierDebs(t *testing.T, deb string) []string {
	t.Helper()
	this := "HEAD" // of a release, whose packages name no commit
	if found := builtOf.FindStringSubmatch(filepath.Base(deb)); found != nil {
		this = found[1]
	}
	commit, err := lab.Commit(t.Context(), this+"^")
	if err != nil {
		t.Fatal(err)
	}
	made, err := lab.Git(t.Context(), "log", "-1", "--format=%ct", commit)
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), "earlier")
	if err := lab.TakeOut(t.Context(), commit, tree); err != nil {
		t.Fatal(err)
	}
	const length = 12 // of a commit in a version
	cmd := exec.CommandContext(t.Context(), "make", "-s", "packages", "COMMIT="+commit[:length],
		"SOURCE_DATE_EPOCH="+strings.TrimSpace(made))
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("packages of %s: %v\n%s", commit, err, out)
	}
	debs, err := metallab.AgentDebs(filepath.Join(tree, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	return debs
}
