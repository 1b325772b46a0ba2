package config

import (
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// Transfer is how images come to this host, and from it to others of its fleet.
type Transfer struct {
	// ADDRESS:PORT at which other hosts get images; without ADDRESS, the one that leads to the server; "": nowhere
	Listen                string
	ReceiveRate, SendRate farm.Bytes // a second; 0: any number
}

type transferFile struct {
	Listen      string `toml:"listen"`
	ReceiveRate string `toml:"receive_rate"`
	SendRate    string `toml:"send_rate"`
}

func (f transferFile) parse() (t Transfer, err error) {
	if t.Listen, err = parseListen("transfer.listen", f.Listen); err != nil {
		return t, err
	}
	if t.ReceiveRate, err = parseRate("transfer.receive_rate", f.ReceiveRate); err != nil {
		return t, err
	}
	t.SendRate, err = parseRate("transfer.send_rate", f.SendRate)
	return t, err
}

// leastRate is what a transfer comes to an end at.
const leastRate = 256 * farm.KiB

func parseRate(key, text string) (farm.Bytes, error) {
	rate, err := farm.ParseBytes(text)
	if err == nil && rate != 0 && rate < leastRate {
		err = fmt.Errorf("less than %v", leastRate)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: invalid rate %q, expected bytes a second, such as 100M, or 0 for any: %w", key,
			text, err)
	}
	return rate, nil
}
