package apply

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/farm"
)

// programTime is the longest that a program of the host may take. Stopping a service may wait 90 s for its processes.
const programTime = 3 * time.Minute

// run starts a program of the host and returns what it printed.
type run func(ctx context.Context, program string, args ...string) (string, error)

// live is the host that we run on.
type live struct {
	root *os.Root
	run  run
	has  func(program string) bool
}

// Live is the host that we run on.
func Live() (System, error) {
	root, err := os.OpenRoot("/")
	if err != nil {
		return nil, fmt.Errorf("open /: %w", err)
	}
	return &live{root, runProgram, func(program string) bool { _, err := findProgram(program); return err == nil }}, nil
}

func (l *live) Root() *os.Root                 { return l.root }
func (l *live) Live() bool                     { return true }
func (l *live) Owner() int                     { return 0 }
func (l *live) Group() int                     { return 0 }
func (l *live) VMs() ([]VM, error)             { return RunningVMs(l.root) }
func (l *live) Touches(Step) ([]string, error) { return nil, nil }

// Write hands the kernel the whole value in one call, as its files want it.
func (l *live) Write(ctx context.Context, path, value string) error {
	f, err := l.openSetting(ctx, path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q to /%s: %w", value, path, err)
	}
	return nil
}

// openSetting opens a file of the kernel to write one value. KSM's has one writer of ours at a time: killed while it
// takes pages apart, or before the kernel lets it begin, a writer still stops KSM, and would do that over the value of
// whoever did not wait.
func (l *live) openSetting(ctx context.Context, path string) (*os.File, error) {
	const pause = 5 * time.Millisecond
	f, err := l.root.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open /%s: %w", path, err)
	}
	if path != ksmRun {
		return f, nil
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock /%s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(pause):
		}
	}
}

// Unmerge lets a child write, for the kernel takes all pages apart inside of that one call and listens to nothing but a
// signal to the caller: whoever writes another value meanwhile waits for its end. A killed writer leaves KSM stopped,
// the rest merged. The child has the file's lock from us, and so keeps it when we are killed, until the kernel lets go
// of it.
func (l *live) Unmerge(ctx context.Context) error {
	runtime.LockOSThread() // Pdeathsig is about the thread
	defer runtime.UnlockOSThread()
	f, err := l.openSetting(ctx, ksmRun)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "echo 2")
	cmd.Env, cmd.Stdout = []string{}, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err = cmd.Run()
	if _, stop := f.WriteAt([]byte("0"), 0); stop != nil {
		return fmt.Errorf("write 0 to /%s: %w", ksmRun, stop)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("write 2 to /%s: %w", ksmRun, err)
	}
	return nil
}

func (l *live) systemd() bool {
	_, err := l.root.Stat("run/systemd/system")
	return err == nil
}

func (l *live) Service(ctx context.Context, unit string) (Service, error) {
	if !l.systemd() {
		running, err := processes(l.root, unit)
		return Service{Active: len(running) > 0}, err
	}
	text, err := l.run(ctx, "systemctl", "show", "--property=LoadState,ActiveState,UnitFileState", "--",
		unit+".service")
	if err != nil {
		return Service{}, err
	}
	of := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		of[name] = value
	}
	s := Service{Managed: of["LoadState"] != "not-found", Enabled: of["UnitFileState"],
		Active: slices.Contains([]string{"active", "activating", "reloading"}, of["ActiveState"])}
	if !s.Active {
		running, err := processes(l.root, unit)
		if err != nil {
			return Service{}, err
		}
		if len(running) > 0 { // started by hand: no unit to stop
			s.Managed, s.Active = false, true
		}
	}
	return s, nil
}

func (l *live) SetService(ctx context.Context, unit string, want Service) error {
	now, err := l.Service(ctx, unit)
	if err != nil {
		return err
	}
	var steps [][]string
	if wanted, is := strings.HasPrefix(want.Enabled, "enabled"), strings.HasPrefix(now.Enabled,
		"enabled"); wanted != is {
		verb := map[bool]string{true: "enable", false: "disable"}[wanted]
		steps = append(steps, []string{verb, "--", unit + ".service"})
		if want.Enabled == "enabled-runtime" || now.Enabled == "enabled-runtime" {
			steps[0] = []string{verb, "--runtime", "--", unit + ".service"}
		}
	}
	if want.Active != now.Active {
		verb := map[bool]string{true: "start", false: "stop"}[want.Active]
		steps = append(steps, []string{verb, "--", unit + ".service"})
	}
	for _, args := range steps {
		if _, err := l.run(ctx, "systemctl", args...); err != nil {
			return err
		}
	}
	return nil
}

// Load goes round at most three times: a load from the files of modprobe.d, then one that names what came out
// different.
func (l *live) Load(ctx context.Context, want []Module) error {
	explicit := map[string]map[string]string{}
	for range 3 {
		unlike, reload, err := l.unlike(want, explicit)
		if err != nil {
			return err
		}
		if len(unlike) == 0 {
			return nil
		}
		if reload {
			err = l.reload(ctx, want, explicit)
		} else {
			err = l.writeParams(ctx, unlike)
		}
		if err != nil {
			return err
		}
	}
	unlike, _, err := l.unlike(want, explicit)
	if err != nil || len(unlike) == 0 {
		return err
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNotTaken,
		Message: fmt.Sprintf("%s is not what was asked for after loading the modules anew", unlike[0].String()),
		Hint:    "see dmesg; the processor or the kernel may not have it"}
}

// param is a module's parameter that is not as wanted.
type param struct{ module, name, want string }

func (p param) String() string { return "parameter " + p.name + " of module " + p.module }

func (p param) path() string { return "sys/module/" + p.module + "/parameters/" + p.name }

// unlike compares modules with what is wanted. What can only be given at load asks for a reload, and is added to
// explicit.
func (l *live) unlike(want []Module, explicit map[string]map[string]string) (out []param, reload bool, err error) {
	for _, m := range want {
		now, err := moduleParams(l.root, m.Name)
		if err != nil {
			return nil, false, err
		}
		if now == nil {
			out, reload = append(out, param{module: m.Name}), true
			continue
		}
		for _, name := range sortedKeys(m.Params) {
			if sameValue(now[name], m.Params[name]) {
				continue
			}
			p := param{m.Name, name, m.Params[name]}
			out = append(out, p)
			if info, err := l.root.Stat(p.path()); err == nil && info.Mode()&0o200 == 0 {
				reload = true
				if explicit[m.Name] == nil {
					explicit[m.Name] = map[string]string{}
				}
				explicit[m.Name][name] = p.want
			}
		}
	}
	return out, reload, nil
}

func (l *live) writeParams(ctx context.Context, list []param) error {
	for _, p := range list {
		if err := l.Write(ctx, p.path(), p.want); err != nil {
			return err
		}
	}
	return nil
}

// reload takes out the modules from the first that has to change on, the last loaded first, and loads all that are
// missing.
func (l *live) reload(ctx context.Context, want []Module, explicit map[string]map[string]string) error {
	first := slices.IndexFunc(want, func(m Module) bool { return len(explicit[m.Name]) > 0 || !l.loaded(m.Name) })
	for _, m := range slices.Backward(want[first:]) {
		if !l.loaded(m.Name) {
			continue // modprobe takes along what nobody else needs
		}
		if err := l.unload(ctx, m.Name); err != nil {
			return err
		}
	}
	for _, m := range want {
		if l.loaded(m.Name) {
			continue
		}
		if err := l.uncover(); err != nil {
			return err
		}
		args := []string{"--", m.Name}
		for _, name := range sortedKeys(explicit[m.Name]) {
			args = append(args, name+"="+explicit[m.Name][name])
		}
		if _, err := l.run(ctx, "modprobe", args...); err != nil {
			return err
		}
	}
	return nil
}

// uncover removes an empty file from where the kernel puts KVM's device. Some program that looks for the device while
// the module is out makes one, and the kernel lets it be: no VM would start any more, whatever is loaded.
func (l *live) uncover() error {
	const device = "dev/kvm"
	info, err := l.root.Lstat(device)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		return nil
	}
	return l.root.Remove(device)
}

// unload takes a module out. libvirt and whoever else looks at what KVM can do keeps it in use for seconds, so one
// that is in use is tried again for a minute; and some times when it is in use no more: it was when modprobe looked.
func (l *live) unload(ctx context.Context, module string) error {
	const tries, unused, pause = 120, 4, 500 * time.Millisecond
	for n, free := 1, 0; ; n++ {
		_, err := l.run(ctx, "modprobe", "-r", "--", module)
		if (&tree{l.root}).number("sys/module/"+module+"/refcnt") == 0 {
			free++
		}
		if err == nil || n == tries || free == unused {
			return err
		}
		time.Sleep(pause)
	}
}

func (l *live) loaded(module string) bool {
	_, err := l.root.Stat("sys/module/" + module)
	return err == nil
}

func (l *live) CanUpdateBoot() bool { return l.bootProgram() != nil }

func (l *live) UpdateBoot(ctx context.Context) error {
	call := l.bootProgram()
	if call == nil {
		return &farm.Error{Kind: farm.Unavailable, Code: CodeProgramFailed,
			Message: "this host has no " + bootPrograms, Hint: "install one of them"}
	}
	_, err := l.run(ctx, call[0], call[1:]...)
	return err
}

// bootProgram is the call that makes the boot loader's own files; nil where this host has none for it.
func (l *live) bootProgram() []string {
	calls := [][]string{{"update-grub"}, {"grub2-mkconfig", "-o", "/" + l.grubMenu()},
		{"grub-mkconfig", "-o", "/boot/grub/grub.cfg"}}
	if !grubReads(l.root) {
		calls = [][]string{{"kernel-install", "add-all"}}
	}
	for _, c := range calls {
		if l.has(c[0]) {
			return c
		}
	}
	return nil
}

// grubMenu is the file that Red Hat's GRUB reads: the distribution's link leads to it where the firmware is EFI.
func (l *live) grubMenu() string {
	const usual, link = "boot/grub2/grub.cfg", "etc/grub2-efi.cfg"
	if _, err := l.root.Stat("sys/firmware/efi"); err != nil {
		return usual
	}
	if menu, err := resolve(l.root, link); err == nil && menu != link {
		return menu
	}
	return usual
}

// findProgram looks where system programs are, whatever the caller's path says.
func findProgram(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"} {
		if info, err := os.Stat(dir + name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return dir + name, nil
		}
	}
	return "", &farm.Error{Kind: farm.Unavailable, Code: CodeProgramFailed,
		Message: "this host has no program " + name, Hint: "install it, or make the change by hand"}
}

// runProgram lets a program come to its end, or programTime: ctrl-C is for us, and cut short it would leave a module
// out or the boot loader's menu half made. It gets a process group, so that nothing it started goes on after it.
func runProgram(ctx context.Context, program string, args ...string) (string, error) {
	file, err := findProgram(program)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", &farm.Error{Kind: farm.Unavailable, Code: CodeProgramFailed,
			Message: fmt.Sprintf("%s %s: %s", program, strings.Join(args, " "), lastLine(out)),
			Hint:    "run it by hand to see more", Err: err}
	}
	return string(out), nil
}

func lastLine(out []byte) string {
	text := strings.TrimSpace(string(out))
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if len(text) > 300 {
		text = text[:300]
	}
	return text
}
