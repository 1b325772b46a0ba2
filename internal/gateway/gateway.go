// Package gateway brings directories of the host into VMs. It answers a guest kernel's file requests (the FUSE
// protocol) over any byte stream, in the process and with the rights of whoever opens the directory: for a job that is
// `grange exec`, so a VM can do to the host's files what its caller could do, and nothing else.
package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	maxData    = 128 << 10 // bytes of one read or write
	maxMessage = maxData + 4096
	headSize   = 40 // struct fuse_in_header
	parallel   = 8  // requests answered at the same time
)

// serve answers file requests until stream ends; it returns io.EOF then.
func serve(stream io.ReadWriter, raw fuse.RawFileSystem) error {
	return newServer(stream, raw).run()
}

func newServer(stream io.ReadWriter, raw fuse.RawFileSystem) *server {
	return &server{stream: stream, protocol: fuse.NewProtocolServer(raw, &fuse.MountOptions{
		MaxWrite: maxData,
		Logger:   log.New(io.Discard, "", 0),
	})}
}

func fileSystem(b *bound) fuse.RawFileSystem {
	fresh := time.Second // as with NFS: how long a guest may believe what it was told
	raw := fs.NewNodeFS(&node{dir: b}, &fs.Options{EntryTimeout: &fresh, AttrTimeout: &fresh, NullPermissions: true})
	raw = confined{raw}
	if b.ReadOnly {
		raw = reader{raw}
	}
	return raw
}

type server struct {
	stream   io.ReadWriter
	protocol *fuse.ProtocolServer
	write    sync.Mutex
	busy     sync.WaitGroup
}

func (s *server) run() error {
	defer s.busy.Wait()
	free := make(chan *exchange, parallel)
	for range parallel {
		free <- newExchange()
	}
	for {
		x := <-free
		if err := x.receive(s.stream); err != nil {
			return err
		}
		s.busy.Go(func() {
			s.reply(x)
			free <- x
		})
	}
}

func (s *server) reply(x *exchange) {
	n, status := s.protocol.HandleRequest([][]byte{x.request[:x.length]}, [][]byte{x.answer})
	if !status.Ok() {
		n = x.refuse(status)
	}
	if n == 0 {
		return // the kernel waits for no answer
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.stream.Write(x.answer[:n]) // when the stream has ended, receive says so
}

// exchange is one request and room for its answer.
type exchange struct {
	request, answer []byte
	length          int
}

func newExchange() *exchange {
	return &exchange{request: make([]byte, maxMessage), answer: make([]byte, maxMessage)}
}

func (x *exchange) receive(r io.Reader) error {
	if _, err := io.ReadFull(r, x.request[:4]); err != nil {
		return err
	}
	x.length = int(binary.LittleEndian.Uint32(x.request))
	if x.length < headSize || x.length > maxMessage {
		return fmt.Errorf("the guest sent a file request of %d bytes", x.length)
	}
	_, err := io.ReadFull(r, x.request[4:x.length])
	return err
}

// refuse makes an answer that holds nothing but the error (struct fuse_out_header).
func (x *exchange) refuse(status fuse.Status) int {
	const outHeadSize = 16
	binary.LittleEndian.PutUint32(x.answer, outHeadSize)
	binary.LittleEndian.PutUint32(x.answer[4:], uint32(-int32(status)))
	copy(x.answer[8:outHeadSize], x.request[8:16]) // the request's number
	return outHeadSize
}
