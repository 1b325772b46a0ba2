package metallab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/deathsig"
)

// A host's machine. What its snapshots hold depends on all of this.
const (
	// Of each of two nodes. With 3 GiB the first has no page of 1 GiB at boot: two of them lie below 4 GiB, with
	// firmware or kernel in each, and the third, above, holds the node's own tables.
	nodeMiB = 3584
	smp     = "8,sockets=2,cores=2,threads=2"
	// Software emulation hides topoext, without which no AMD processor has threads. Forcing it forces all that the
	// model has, so that what emulation lacks is taken out. xsave, and AVX with it, is what guests under the host's KVM
	// find inconsistent.
	cpu    = "EPYC-Rome,x-force-features=on,+svm,+npt,+pdpe1gb,+invtsc,+topoext,-rdseed,-sha-ni,-rdpid,-fxsr-opt,-misalignsse," + "-3dnowprefetch,-osvw,-perfctr-core,-clzero,-xsaveerptr,-wbnoinvd,-ibpb,-amd-stibp,-nrip-save,-xsave,-xsaveopt,-xsavec,-xsaves,-xgetbv1,-avx,-avx2,-fma,-f16c"
	lanMAC = "52:54:00:aa:00:01"
)

// memory is how the nodes' memory is backed.
type memory struct {
	dir    string // of files 0.ram and 1.ram; "": anonymous
	shared bool   // what the host writes goes into the files
}

func (m memory) backend(node int) string {
	if m.dir == "" {
		return fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", node, nodeMiB)
	}
	share := "off"
	if m.shared {
		share = "on"
	}
	return fmt.Sprintf("memory-backend-file,id=m%d,size=%dM,mem-path=%s/%d.ram,share=%s", node, nodeMiB, m.dir,
		node, share)
}

func machineArgs(dir string, m memory, sshPort int, lan LAN) []string {
	args := []string{"-name", filepath.Base(dir), "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu",
		cpu, "-smp", smp, "-m", strconv.Itoa(2*nodeMiB) + "M"}
	for node := range 2 {
		args = append(args, "-object", m.backend(node), "-numa",
			fmt.Sprintf("node,nodeid=%d,memdev=m%d,cpus=%d-%d", node, node, 4*node, 4*node+3))
	}
	args = append(args, "-numa", "dist,src=0,dst=1,val=21", "-rtc", "base=utc,clock=host", "-netdev",
		fmt.Sprintf("user,id=outer,hostfwd=tcp:127.0.0.1:%d-:22", sshPort), "-device",
		"virtio-net-pci,netdev=outer,addr=2,romfile=", "-netdev",
		fmt.Sprintf("socket,id=lan,mcast=230.0.0.1:%d,localaddr=127.0.0.1", lan.port), "-device",
		"virtio-net-pci,netdev=lan,addr=3,romfile=,mac="+lanMAC)
	for i, name := range disks {
		args = append(args, "-drive",
			fmt.Sprintf("file=%s/%s.qcow2,format=qcow2,if=none,id=d%d,cache=unsafe,discard=unmap", dir, name, i),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=d%d,addr=%d,bootindex=%d", i, 4+i, i))
	}
	return append(args, "-object", "rng-random,id=rng,filename=/dev/urandom", "-device",
		"virtio-rng-pci,rng=rng,addr=0x1b", "-display", "none", "-vga", "none", "-monitor", "none", "-serial",
		"file:"+dir+"/serial.log", "-qmp", "unix:"+dir+"/qmp.sock,server=on,wait=off")
}

// disks of a host: the one that it boots from, and an empty one.
var disks = []string{"disk", "second"}

// overlay gives dir disks of its own over those of another snapshot, or over a disk that boots.
func overlay(ctx context.Context, dir, boot, snapshot string) error {
	for _, name := range disks {
		file := filepath.Join(dir, name+".qcow2")
		args := []string{"create", "-q", "-f", "qcow2", file, "4G"}
		switch {
		case snapshot != "":
			args = []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b",
				filepath.Join(snapshot, name+".qcow2"), file}
		case name == disks[0]:
			args = []string{"create", "-q", "-f", "qcow2", "-F", "raw", "-b", boot, file}
		}
		if out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("qemu-img: %w: %s", err, out)
		}
	}
	return nil
}

// LAN is a network that hosts share and nobody else is on.
type LAN struct{ port int }

// NewLAN returns a network of its own.
func NewLAN() (LAN, error) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return LAN{}, err
	}
	return LAN{conn.LocalAddr().(*net.UDPAddr).Port}, conn.Close()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// qemu starts the machine and returns its monitor. Unless kept, it ends with this program, whatever ends that.
func (h *Host) qemu(ctx context.Context, m memory, keep bool, more ...string) (err error) {
	// What ended before us in this directory is no monitor of ours.
	if err := os.Remove(h.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if h.port, err = freePort(); err != nil {
		return err
	}
	if err := os.WriteFile(h.path("port"), []byte(strconv.Itoa(h.port)), 0o600); err != nil {
		return err
	}
	h.leaving.Store(false)
	if !keep { // a host of a test is reset by Reboot, or by a fault of the emulator
		more = append(more, "-action", "reboot=shutdown")
	}
	cmd := h.lab.emulator(ctx, h.emulator).command(append(machineArgs(h.Dir, m, h.port, h.lan), more...)...)
	log, err := os.Create(h.path("qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, h.uses
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if keep {
		err = cmd.Start()
	} else {
		err = deathsig.Start(cmd, syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	h.ended = make(chan struct{})
	go func(ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(h.ended)
	go h.watch(h.ended)
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("QEMU does not answer"))
	defer cancel()
	h.monitor, err = dialMonitor(ctx, h.socket())
	if err != nil {
		text, _ := os.ReadFile(h.path("qemu.log"))
		return fmt.Errorf("%w: %s", err, text)
	}
	return nil
}
