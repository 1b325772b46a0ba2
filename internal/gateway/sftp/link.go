package sftp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The first messages of SFTP; see draft-ietf-secsh-filexfer-02, which OpenSSH has.
const (
	initMessage    = 1
	versionMessage = 2
	version        = 3
	mostWords      = 64 << 10 // of extensions
)

// greetSeconds is for a program to be loaded and to answer, on a host that is very busy.
const greetSeconds = 30

// greet says the first message, as the guest's side will do again, and waits for the answer.
func greet(link *os.File) error {
	wait := func(seconds int64) error {
		return unix.SetsockoptTimeval(int(link.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: seconds})
	}
	if err := wait(greetSeconds); err != nil {
		return err
	}
	hello := binary.BigEndian.AppendUint32(nil, 5)
	hello = binary.BigEndian.AppendUint32(append(hello, initMessage), version)
	if _, err := link.Write(hello); err != nil {
		return err
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(link, head); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head)
	if head[4] != versionMessage || length < 5 || length > mostWords {
		return fmt.Errorf("its first word is not of SFTP: %x", head)
	}
	if _, err := io.CopyN(io.Discard, link, int64(length)-1); err != nil {
		return err
	}
	return wait(0)
}

// join connects QEMU, once, with sftp-server, and returns when one of them has gone.
func join(listener, link *os.File) error {
	l, err := net.FileListener(listener)
	if err != nil {
		return err
	}
	server, err := net.FileConn(link)
	if err != nil {
		return err
	}
	link.Close()
	listener.Close()
	qemu, err := l.Accept()
	l.Close()
	if err != nil {
		return errors.Join(err, server.Close())
	}
	go func() {
		io.Copy(server, qemu)
		server.Close() // sftp-server ends with its input
	}()
	_, err = io.Copy(qemu, server)
	return errors.Join(err, qemu.Close())
}
