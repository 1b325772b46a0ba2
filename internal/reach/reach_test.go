package reach

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestLocal(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "169.254.169.254": true,
		"::ffff:169.254.1.1": true, "fe80::1": true, "fe80::1%eth0": true, "0.0.0.0": true, "::": true,
		"::ffff:0.0.0.0": true, "224.0.0.1": true, "ff02::1": true,
		"fd00:ec2::254": true, "::ffff:168.63.129.16": true, "100.100.100.200": true, "64:ff9b::7f00:1": true,
		"64:ff9b::a9fe:a9fe": true, "64:ff9b::a00:1": false, "fd00:ec2::253": false,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "fd00::1": false, "192.0.2.1": false,
		"2001:db8::1": false,
	} {
		if got := local(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: local %v", address, got)
		}
	}
}

// A server of this host is reached without a bound, and by the name that the site gave; not otherwise.
func TestOutside(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		outside *Outside
		url     string
		refused bool
	}{
		{nil, s.URL, false},
		{&Outside{}, s.URL, true},
		{&Outside{}, byName, true},
		{&Outside{Host: "127.0.0.1"}, s.URL, false},
		{&Outside{Host: "127.0.0.1"}, byName, true},
	} {
		asked = 0
		answer, err := (&http.Client{Transport: c.outside.Over(&http.Transport{})}).Get(c.url)
		if err == nil {
			answer.Body.Close()
		}
		if c.refused != errors.Is(err, ErrLocal) || c.refused == (asked > 0) {
			t.Errorf("%+v %s: %v, asked %d times", c.outside, c.url, err, asked)
		}
	}
}

// The site's proxy may be on this host; it is not asked for addresses that are not allowed.
func TestProxy(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: (&Outside{}).Over(&http.Transport{Proxy: http.ProxyURL(at)})}
	answer, err := c.Get("http://images.example.org/disk.img")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if _, err := c.Get("http://169.254.169.254/latest"); !errors.Is(err, ErrLocal) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
