package fleet

// RouteTransfers is where hosts say which images they hold, and ask for those that they want: POST TransferReport →
// TransferAnswer. RouteChunks is where the server gives chunks of images.
const (
	RouteTransfers = "/v1/host/transfers"
	RouteChunks    = "/v1/chunks/"
)

// TransferReport is what a host holds of the server's images, all of it, and which it fetches now.
type TransferReport struct {
	Address string   `json:"address,omitempty"` // HOST:PORT at which it gives to others; "": it does not
	Holds   []string `json:"holds,omitempty"`   // digests
	Wants   []string `json:"wants,omitempty"`   // digests
}

// TransferAnswer is where the wanted images are to be had.
type TransferAnswer struct {
	Transfers []Transfer `json:"transfers,omitempty"`
	Next      float64    `json:"next"` // seconds, after which to report again
}

// Transfer is where one image is to be had.
type Transfer struct {
	Digest  string         `json:"digest"`
	Index   string         `json:"index,omitempty"`   // digest of its index; "": it is being made
	Problem string         `json:"problem,omitempty"` // why there is none
	Missing bool           `json:"missing,omitempty"` // the server does not have the image
	Peers   []TransferPeer `json:"peers,omitempty"`   // some of those who hold it, or parts of it
}

// TransferPeer is a host that gives to others.
type TransferPeer struct {
	Host    string `json:"host"` // ID
	Address string `json:"address"`
}
