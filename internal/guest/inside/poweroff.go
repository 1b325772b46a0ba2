package inside

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// endingTimeout is how long processes have between being asked to end and being ended, when the VM is powered off.
const endingTimeout = 5 * time.Second

// obeySignals is for process 1: busybox's halt, poweroff and reboot ask it by these signals, in this order.
func (g *Guest) obeySignals() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM)
	if <-asked == unix.SIGTERM {
		g.powerOff(unix.LINUX_REBOOT_CMD_RESTART)
	} else {
		g.powerOff(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
}

// leave is for a service: one that its system ends, as at a reboot, says so, and is not missed. It does not wait for a
// host that is away.
func (g *Guest) leave() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	<-asked
	time.AfterFunc(leaveTimeout, func() { os.Exit(0) })
	g.tell(guest.State{Phase: guest.Leaving})
	os.Exit(0)
}

const leaveTimeout = time.Second

// powerOff ends the VM: as process 1 by itself, else by asking whoever is. The hypervisor takes a restart for an end,
// too.
func (g *Guest) powerOff(command int) {
	g.mu.Lock()
	again := g.off
	g.off = true
	g.mu.Unlock()
	if again {
		return
	}
	if !g.init {
		g.askInit()
		return
	}
	logf("power off")
	unix.Kill(-1, unix.SIGTERM)
	unix.Kill(-1, unix.SIGHUP) // shells of terminals do not end by the other one
	for deadline := time.Now().Add(endingTimeout); othersRun() &&
		time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	unix.Kill(-1, unix.SIGKILL)
	for deadline := time.Now().Add(endingTimeout); othersRun() &&
		time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
	}
	if err := unix.Unmount("/tmp", 0); err != nil {
		logf("unmount /tmp: %v", err)
	}
	unix.Sync()
	if err := unix.Reboot(command); err != nil {
		logf("power off: %v", err)
	}
}

// ending reports whether the VM is being powered off.
func (g *Guest) ending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.off
}

// askInit has a full system's init power off. The VM's power button is what is left where that fails.
func (g *Guest) askInit() {
	for _, argv := range [][]string{{"/usr/bin/systemctl", "--no-block", "poweroff"},
		{"/bin/systemctl", "--no-block", "poweroff"}, {"/usr/sbin/poweroff"}, {"/sbin/poweroff"}} {
		_, end, err := g.reaper.start(func() (int, error) {
			return syscall.ForkExec(argv[0], argv,
				&syscall.ProcAttr{Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
					Files: []uintptr{0, 1, 2}})
		})
		if err == nil && exitOf(<-end).Code == 0 {
			return
		}
	}
	logf("power off: nobody here does it")
}

// othersRun reports whether there is any process but us and the kernel's own, which have no memory.
func othersRun() bool {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, err := os.ReadFile(file)
		if err != nil || pid <= 1 {
			continue
		}
		// behind the name: state, and so on; the 21st is the size of its memory
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 20 && fields[0] != "Z" && fields[20] != "0" {
			return true
		}
	}
	return false
}
