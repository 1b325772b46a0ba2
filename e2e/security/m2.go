package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// outside is another host of the attacked one's site, in a namespace behind a pair of interfaces, with a server that
// answers at its address there, and at one that the host is on no network of.
const (
	outsideName = "gs-outside"
	outsideHost = "198.18.77.1" // the attacked host's own address in it
	outsidePeer = "198.18.77.2"
	outsideFar  = "198.18.79.1"
	outsidePort = "8077"
	outsideWord = "beyond-the-host"
)

// reachableHost: a guest with the network user reaches neither what listens on its host, on the loopback and on another
// address, nor a neighbour of its host, and reaches what is further away.
func reachableHost(ctx context.Context, s *site) error {
	l, err := s.lab(ctx)
	if err != nil {
		return err
	}
	down, err := s.outside(ctx)
	if err != nil {
		return err
	}
	defer down()
	// Rules outlive the agent that made them: those of an earlier run are none of this one's.
	exec.CommandContext(ctx, "nft", "delete", "table", "inet", "grange").Run()
	const secret = "of-this-host-alone"
	ports := []int{}
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		defer listener.Close()
		go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			fmt.Fprintln(w, secret)
		}))
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	script := ""
	for _, at := range []string{
		fmt.Sprintf("10.0.2.2 %d", ports[0]), fmt.Sprintf("10.0.2.2 %d", ports[1]),
		fmt.Sprintf("%s %d", outsideHost, ports[1]), outsidePeer + " " + outsidePort, outsideFar + " " + outsidePort,
	} {
		script += fmt.Sprintf("echo %s; printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 5 %s\n", at, at)
	}
	out, err := l.Exec(ctx, "--network", "user", "--", "sh", "-c", script+"true").CombinedOutput()
	switch text := string(out); {
	case strings.Contains(text, secret):
		return breach("the guest reads what its host serves:\n%s", text)
	case err != nil:
		return fmt.Errorf("%w: %s", err, text)
	case strings.Contains(text, outsideWord+" "+outsidePeer):
		return breach("the guest reads what a neighbour of its host serves:\n%s", text)
	case !strings.Contains(text, outsideWord+" "+outsideFar):
		return fmt.Errorf("the guest does not reach a host further away:\n%s", text)
	}
	return nil
}

// outside brings the other network up; the returned function takes it down.
func (s *site) outside(ctx context.Context) (down func(), err error) {
	run := func(ctx context.Context, words string) error {
		argv := strings.Fields(words)
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", words, err, out)
		}
		return err
	}
	remove := func() { run(context.WithoutCancel(ctx), "ip netns del "+outsideName) } // its interfaces go with it
	for _, words := range []string{
		"ip netns add " + outsideName,
		"ip link add gs-host type veth peer name gs-peer netns " + outsideName,
		"ip addr add " + outsideHost + "/30 dev gs-host",
		"ip link set gs-host up",
		"ip -n " + outsideName + " addr add " + outsidePeer + "/30 dev gs-peer",
		"ip -n " + outsideName + " link set gs-peer up",
		"ip -n " + outsideName + " addr add " + outsideFar + "/32 dev lo",
		"ip -n " + outsideName + " link set lo up",
		"ip route add " + outsideFar + "/32 via " + outsidePeer,
	} {
		if err := run(ctx, words); err != nil {
			remove()
			return nil, err
		}
	}
	server := exec.Command("ip", "netns", "exec", outsideName, s.path("self"), actFlag, "serve",
		":"+outsidePort, outsideWord)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		remove()
		return nil, err
	}
	return func() { server.Process.Kill(); server.Wait(); remove() }, nil
}

// serve answers HTTP at an address with a word, and with its own address that was asked.
func serve(args []string) error {
	if len(args) != 2 {
		return errors.New("serve ADDRESS WORD")
	}
	return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		fmt.Fprintln(w, args[1], asked.IP)
	}))
}
