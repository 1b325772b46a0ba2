package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// bind is a mounted directory of the host. The kernel's file requests go to the host as they are, over one stream of
// the session, where `grange exec` answers them with the caller's own rights. What root in this VM asks for is asked
// for as the caller too: the VM can not raise anybody's rights on the host.
type bind struct {
	target string
	device *os.File
	stream *guest.Stream
	root   int    // what is mounted, as a descriptor
	fresh  *fresh // nil where no other job can change what the kernel believes
	shared bool   // virtiofs or sftp: there are no device, stream and root
}

// maxRequest is the largest file request: 128 KiB of data, and room for its head.
const maxRequest = 128<<10 + 4096

func (t *task) mountBinds() error {
	if len(t.job.Binds) == 0 {
		return nil
	}
	if err := loadModules("fuse"); err != nil {
		return err
	}
	for i, w := range t.job.Binds {
		b, err := t.mountBind(w, guest.StreamBind+byte(i))
		if err != nil {
			return fmt.Errorf("bind %s: %w", w.Target, err)
		}
		t.mu.Lock()
		t.binds = append(t.binds, b)
		gone := t.ended
		t.mu.Unlock()
		if gone {
			b.abort()
			return errEnded
		}
	}
	return nil
}

func (t *task) mountBind(w guest.Bind, id byte) (*bind, error) {
	if err := os.MkdirAll(w.Target, 0o755); err != nil {
		return nil, err
	}
	if w.Port != "" {
		return &bind{target: w.Target, shared: true}, t.guest.showPort(w)
	}
	if w.Tag != "" {
		err := mountShare(w)
		if err == nil {
			return &bind{target: w.Target, shared: true}, nil
		}
		if !w.Stream {
			return nil, err
		}
		logf("bind %s: %v; FUSE takes its place", w.Target, err)
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		unix.Mknod("/dev/fuse", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 229)))
		os.Chmod("/dev/fuse", deviceModes["fuse"])
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0) // blocking: one request a read
	if err != nil {
		return nil, err
	}
	b := &bind{target: w.Target, device: os.NewFile(uintptr(fd), "/dev/fuse"), stream: t.session.Stream(id)}
	if t.job.Shared {
		b.fresh = newFresh()
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if w.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,max_read=%d", fd, 128<<10)
	if err := unix.Mount("grange:"+filepath.Base(w.Target), w.Target, "fuse", flags, options); err != nil {
		return nil, err
	}
	if b.root, err = unix.Open(w.Target, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil { // asks nobody anything
		return nil, err
	}
	go b.requests(fd)
	go b.answers()
	return b, nil
}

// mountShare mounts a directory by virtiofs. Several tasks may mount the same one: the kernel has it once.
func mountShare(w guest.Bind) error {
	if err := loadModules("virtiofs"); err != nil {
		return fmt.Errorf("virtiofs: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if w.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	err := unix.Mount(w.Tag, w.Target, "virtiofs", flags, "")
	if err == unix.ENODEV {
		return errors.New("the kernel of this VM has no virtiofs: build the image with a kernel that has " +
			"CONFIG_VIRTIO_FS, or bind with gateway=fuse")
	}
	if err != nil {
		return fmt.Errorf("mount virtiofs: %w", err)
	}
	return nil
}

// abort fails every request that waits and every one to come, once the session is closed: the reader of the device
// finds no stream for the next request, and closes it. So there must be a next one.
func (b *bind) abort() {
	if b.shared {
		return // the host ends the VM when its side has gone
	}
	var fs unix.Statfs_t
	unix.Fstatfs(b.root, &fs)
	unix.Close(b.root)
}

// doubt has the kernel ask again for what it was told a moment ago.
func (b *bind) doubt() {
	if b.shared {
		return // all jobs in the VM have the same kernel's view
	}
	for _, m := range b.fresh.doubts() {
		b.device.Write(m) // ENOENT: it has forgotten the file by itself
	}
}

// requests carries requests to the host. Each starts with its own length, so the stream needs no frames.
func (b *bind) requests(fd int) {
	buf := make([]byte, maxRequest)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT: // ENOENT: the request was interrupted
			continue
		case err != nil: // it is not mounted any more
			b.stream.CloseWrite()
			b.device.Close()
			return
		}
		if b.fresh != nil {
			b.fresh.request(buf[:n])
		}
		if _, err := b.stream.Write(buf[:n]); err != nil {
			b.device.Close() // nobody will answer: those that wait get an error
			return
		}
	}
}

// answers carries the host's answers to the kernel, one a write.
func (b *bind) answers() {
	buf := make([]byte, maxRequest)
	for {
		if _, err := io.ReadFull(b.stream, buf[:4]); err != nil {
			return
		}
		n := int(binary.LittleEndian.Uint32(buf))
		if n < 16 || n > len(buf) {
			logf("bind %s: an answer of %d bytes", b.target, n)
			return
		}
		if _, err := io.ReadFull(b.stream, buf[4:n]); err != nil {
			return
		}
		if b.fresh != nil {
			b.fresh.answer(buf[:n])
		}
		b.device.Write(buf[:n]) // ENOENT: nobody waits for this answer any more
	}
}

// flush writes what is still in memory (mapped files) to the host.
func (b *bind) flush() {
	dir, err := os.Open(b.target)
	if err != nil {
		return
	}
	defer dir.Close()
	unix.Syncfs(int(dir.Fd()))
}
