// The fabric of `netsim` with two leaves in ns-3, for the flows of a file.
//
//   fabric HOSTS_PER_LEAF GBPS DELAY_US BUFFER_PACKETS MARK_PACKETS FLOWS
//          [--spines=N] [--slowUs=US] [--control=dctcp|newreno] [--policy=rps|letflow] [--gapUs=US]
//          [--pias=BYTES] [--shared=BYTES] [--alpha=A] [--own=BYTES] [--marks=0] [--seed=N]
//          [--hostGbps=GBPS] [--sack=1] [--mend=NAMES] [--trace=N]
//
// Links of the first spine take `slowUs` longer. With several spines the leaves choose one by `policy`: for each
// packet, or for each flowlet. With `pias` switches have two queues, and a segment at or beyond so many bytes of
// its flow waits in the second. With `shared` the ports of a switch share so many bytes, of which each may hold `alpha`
// times what is free; with `own` each port has so many for itself. Without `marks` MARK_PACKETS is not looked at.
// Hosts' links are as fast as others without `hostGbps`.
// With `mend` senders follow the RFCs in what sender.h has a name for. With `trace` the sender of the flow of that number,
// counted from 1, prints a line an event.
//
// A line of FLOWS is a flow: from, to, bytes, start in ns. Prints a line a flow, its completion
// time in ns, from the moment when its connection stands to the arrival of its last byte, and its
// retransmission timeouts; then `dropped`, packets that switches dropped, and `seconds`, the processor time of the run.

#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"
#include "sender.h"

using namespace ns3;

namespace {

struct Flow {
  unsigned from, to;
  uint64_t bytes, start_ns;
  uint64_t sent = 0, arrived = 0;
  Time begin, end;
  Ptr<Socket> listener;
  Ptr<Sender> sender;
};

void Fill(Flow *flow, Ptr<Socket> socket, uint32_t) {
  while (flow->sent < flow->bytes) {
    auto room = std::min<uint64_t>(socket->GetTxAvailable(), flow->bytes - flow->sent);
    if (room == 0) return;
    int taken = socket->Send(Create<Packet>(room));
    if (taken <= 0) return;
    flow->sent += taken;
  }
}

void Connected(Flow *flow, Ptr<Socket> socket) {
  flow->begin = Simulator::Now();
  Fill(flow, socket, 0);
}

void Receive(Flow *flow, Ptr<Socket> socket) {
  while (Ptr<Packet> packet = socket->Recv()) flow->arrived += packet->GetSize();
  if (flow->arrived == flow->bytes) flow->end = Simulator::Now();
}

void Accept(Flow *flow, Ptr<Socket> socket, const Address &) {
  socket->SetRecvCallback(MakeBoundCallback(&Receive, flow));
}

void Start(Flow *flow, Ptr<Sender> sender, Address to) {
  flow->sender = sender;
  flow->sender->SetConnectCallback(MakeBoundCallback(&Connected, flow), MakeNullCallback<void, Ptr<Socket>>());
  flow->sender->SetSendCallback(MakeBoundCallback(&Fill, flow));
  flow->sender->Bind();
  flow->sender->Connect(to);
}

// Segments beyond the first bytes of their flow are one priority lower. Sequence numbers begin at 0, with the SYN.
class Pias : public Ipv4PacketFilter {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("Pias").SetParent<Ipv4PacketFilter>().AddConstructor<Pias>().AddAttribute(
        "Bytes", "of the first priority", UintegerValue(0), MakeUintegerAccessor(&Pias::bytes),
        MakeUintegerChecker<uint32_t>());
    return id;
  }

 private:
  int32_t DoClassify(Ptr<QueueDiscItem> item) const override {
    TcpHeader tcp;
    const auto header = item->GetPacket()->PeekHeader(tcp);
    if (header == 0 || item->GetPacket()->GetSize() == header) return 0;
    return tcp.GetSequenceNumber().GetValue() - 1 >= bytes;
  }

  uint32_t bytes = 0;
};

NS_OBJECT_ENSURE_REGISTERED(Pias);

class SharedQueueDisc;

// The buffer of a switch, with the dynamic threshold of Choudhury and Hahne (1998), or all of a port's own.
struct SharedBuffer {
  uint64_t bytes = 0;
  double alpha = 1;
  std::vector<Ptr<SharedQueueDisc>> ports;

  uint64_t PortLimit() const;
};

// Lets packets into the queues of a port as far as the switch's buffer goes.
class SharedQueueDisc : public QueueDisc {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("SharedQueueDisc").SetParent<QueueDisc>().AddConstructor<SharedQueueDisc>();
    return id;
  }

  SharedQueueDisc() : QueueDisc(QueueDiscSizePolicy::SINGLE_CHILD_QUEUE_DISC) {}

  // What a device holds counts, too, where it is given.
  void Share(SharedBuffer *with, Ptr<PointToPointNetDevice> counted) {
    buffer = with;
    device = counted;
    buffer->ports.push_back(this);
  }

  uint64_t Held() const { return GetNBytes() + (device ? device->GetQueue()->GetNBytes() : 0); }

 private:
  bool DoEnqueue(Ptr<QueueDiscItem> item) override {
    if (Held() + item->GetSize() > buffer->PortLimit()) {
      DropBeforeEnqueue(item, "the switch's buffer");
      return false;
    }
    return GetQueueDiscClass(0)->GetQueueDisc()->Enqueue(item);
  }
  Ptr<QueueDiscItem> DoDequeue() override { return GetQueueDiscClass(0)->GetQueueDisc()->Dequeue(); }
  bool CheckConfig() override { return GetNQueueDiscClasses() == 1; }
  void InitializeParams() override {}

  SharedBuffer *buffer = nullptr;
  Ptr<PointToPointNetDevice> device;
};

uint64_t SharedBuffer::PortLimit() const {
  if (ports.size() == 1) return bytes;
  uint64_t used = 0;
  for (const auto &port : ports) used += port->Held();
  return used < bytes ? alpha * (bytes - used) : 0;
}

NS_OBJECT_ENSURE_REGISTERED(SharedQueueDisc);

// A leaf's choice among its spines, for packets to the other leaf.
class Balancer : public Ipv4RoutingProtocol {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("Balancer").SetParent<Ipv4RoutingProtocol>();
    return id;
  }

  struct Uplink {
    Ptr<NetDevice> device;
    Ipv4Address gateway;
  };

  Balancer(bool is_letflow, Time gap) : is_letflow(is_letflow), gap(gap), random(CreateObject<UniformRandomVariable>()) {}

  void AddUplink(Uplink uplink) { uplinks.push_back(uplink); }
  void AddHost(Ipv4Address host) { own.insert(host); }

  bool RouteInput(Ptr<const Packet> packet, const Ipv4Header &header, Ptr<const NetDevice> from,
                  UnicastForwardCallback forward, MulticastForwardCallback, LocalDeliverCallback,
                  ErrorCallback) override {
    for (auto &uplink : uplinks)
      if (uplink.device == from) return false;
    if (own.count(header.GetDestination())) return false;
    const auto &uplink = uplinks[Choose(packet, header)];
    auto route = Create<Ipv4Route>();
    route->SetDestination(header.GetDestination());
    route->SetSource(header.GetSource());
    route->SetGateway(uplink.gateway);
    route->SetOutputDevice(uplink.device);
    forward(route, packet, header);
    return true;
  }

  Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header &, Ptr<NetDevice>, Socket::SocketErrno &error) override {
    error = Socket::ERROR_NOROUTETOHOST;
    return nullptr;
  }
  void NotifyInterfaceUp(uint32_t) override {}
  void NotifyInterfaceDown(uint32_t) override {}
  void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
  void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
  void SetIpv4(Ptr<Ipv4>) override {}
  void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

 private:
  using Key = std::tuple<uint32_t, uint16_t, uint32_t, uint16_t>;
  struct Flowlet {
    size_t uplink;
    Time last;
  };

  size_t Draw() { return random->GetInteger(0, uplinks.size() - 1); }

  size_t Choose(Ptr<const Packet> packet, const Ipv4Header &header) {
    if (!is_letflow) return Draw();
    TcpHeader tcp;
    packet->PeekHeader(tcp);
    const Key key{header.GetSource().Get(), tcp.GetSourcePort(), header.GetDestination().Get(), tcp.GetDestinationPort()};
    const Time now = Simulator::Now();
    auto known = flowlets.find(key);
    if (known == flowlets.end()) known = flowlets.insert({key, {Draw(), now}}).first;
    if (now - known->second.last > gap) known->second.uplink = Draw();
    known->second.last = now;
    return known->second.uplink;
  }

  bool is_letflow;
  Time gap;
  Ptr<UniformRandomVariable> random;
  std::vector<Uplink> uplinks;
  std::set<Ipv4Address> own;
  std::map<Key, Flowlet> flowlets;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc < 7) {
    std::cerr << "usage: fabric HOSTS_PER_LEAF GBPS DELAY_US BUFFER_PACKETS MARK_PACKETS FLOWS [OPTIONS]\n";
    return 2;
  }
  unsigned spines = 1, seed = 1, trace = 0;
  uint64_t pias = 0, shared = 0, own = 0;
  bool marks = true, sack = false;
  double slow_us = 0, gap_us = 500, alpha = 1, host_gbps = 0;
  std::string control = "dctcp", policy = "rps", mend;
  CommandLine options;
  options.AddValue("spines", "spines", spines);
  options.AddValue("slowUs", "what links of the first spine take longer", slow_us);
  options.AddValue("control", "dctcp or newreno", control);
  options.AddValue("policy", "rps or letflow", policy);
  options.AddValue("gapUs", "a longer silence ends a flowlet", gap_us);
  options.AddValue("pias", "bytes of a flow that go first", pias);
  options.AddValue("shared", "bytes that a switch's ports share", shared);
  options.AddValue("alpha", "times what is free of them that a port may hold", alpha);
  options.AddValue("own", "bytes that each of a switch's ports has for itself", own);
  options.AddValue("marks", "whether switches mark", marks);
  options.AddValue("seed", "of the choice of paths", seed);
  options.AddValue("hostGbps", "rate of hosts' links, where it is another", host_gbps);
  options.AddValue("sack", "whether receivers say what they have", sack);
  options.AddValue("mend", "what of senders follows the RFCs, by the names of sender.h, with commas between", mend);
  options.AddValue("trace", "number of the flow whose sender prints what it does", trace);
  options.Parse(argc - 6, argv + 6);
  RngSeedManager::SetRun(seed);
  const unsigned hosts_per_leaf = std::stoul(argv[1]);
  const std::string rate = std::string(argv[2]) + "Gbps", delay = std::string(argv[3]) + "us";
  if ((shared > 0 || own > 0) && pias == 0) {
    std::cerr << "a buffer in bytes takes --pias\n";
    return 2;
  }
  if (shared > 0 && own > 0) {
    std::cerr << "a buffer is shared or a port's own\n";
    return 2;
  }
  std::unique_ptr<Mends> mends;
  try {
    mends = std::make_unique<Mends>(mend);
  } catch (const std::string &unknown) {
    std::cerr << "senders have nothing to mend that is called " << unknown << "; sender.h has the names\n";
    return 2;
  }
  const uint32_t buffer = std::stoul(argv[4]);
  // No queue is ever longer than it may be.
  const double mark = marks ? std::stod(argv[5]) : buffer + 1;

  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(control == "dctcp" ? TcpDctcp::GetTypeId() : TcpNewReno::GetTypeId()));
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(10)));
  Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MicroSeconds(1)));
  Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
  Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
  Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1500));
  Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0));
  Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(mark));
  Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(mark));
  Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, buffer)));

  NodeContainer hosts(2 * hosts_per_leaf), switches(2 + spines);  // two leaves and the spines
  InternetStackHelper internet;
  internet.Install(hosts);
  internet.Install(switches);
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue(rate));
  link.SetChannelAttribute("Delay", StringValue(delay));
  link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
  TrafficControlHelper marking, patient;
  if (pias > 0) {
    const StringValue priomap("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
    uint16_t prio;
    if (shared > 0 || own > 0) {
      const auto root = marking.SetRootQueueDisc("SharedQueueDisc");
      const auto only = marking.AddQueueDiscClasses(root, 1, "ns3::QueueDiscClass");
      prio = marking.AddChildQueueDisc(root, only[0], "ns3::PrioQueueDisc", "Priomap", priomap);
    } else {
      prio = marking.SetRootQueueDisc("ns3::PrioQueueDisc", "Priomap", priomap);
    }
    marking.AddPacketFilter(prio, "Pias", "Bytes", UintegerValue(pias));
    const auto classes = marking.AddQueueDiscClasses(prio, 2, "ns3::QueueDiscClass");
    for (const auto it : classes) marking.AddChildQueueDisc(prio, it, "ns3::RedQueueDisc");
  } else if (control == "dctcp") {
    marking.SetRootQueueDisc("ns3::RedQueueDisc");
  } else {
    marking.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, buffer)));
  }
  std::vector<SharedBuffer> buffers(switches.GetN());
  std::vector<std::unique_ptr<SharedBuffer>> own_buffers;
  std::vector<Ptr<QueueDisc>> ports;
  const auto install_port = [&](unsigned number, Ptr<NetDevice> device) {
    ports.push_back(marking.Install(device).Get(0));
    const auto port = DynamicCast<SharedQueueDisc>(ports.back());
    if (!port) return;
    if (own > 0) own_buffers.push_back(std::make_unique<SharedBuffer>());
    SharedBuffer &memory = own > 0 ? *own_buffers.back() : buffers[number];
    memory.bytes = own > 0 ? own : shared;
    memory.alpha = alpha;
    port->Share(&memory, mends->port ? DynamicCast<PointToPointNetDevice>(device) : nullptr);
  };
  patient.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  std::vector<Ipv4Address> address(hosts.GetN());
  if (host_gbps > 0) link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(host_gbps * 1e9))));
  for (unsigned host = 0; host < hosts.GetN(); host++) {
    auto devices = link.Install(hosts.Get(host), switches.Get(host / hosts_per_leaf));
    patient.Install(devices.Get(0));
    install_port(host / hosts_per_leaf, devices.Get(1));
    address[host] = addresses.Assign(devices).GetAddress(0);
    addresses.NewNetwork();
  }
  link.SetDeviceAttribute("DataRate", StringValue(rate));
  Ptr<Balancer> balancers[2];
  for (unsigned leaf = 0; leaf < 2; leaf++) {
    balancers[leaf] = Create<Balancer>(policy == "letflow", MicroSeconds(gap_us));
    for (unsigned host = leaf * hosts_per_leaf; host < (leaf + 1) * hosts_per_leaf; host++)
      balancers[leaf]->AddHost(address[host]);
    for (unsigned spine = 0; spine < spines; spine++) {
      const Time longer = NanoSeconds(spine == 0 ? uint64_t(slow_us * 1000) : 0);
      link.SetChannelAttribute("Delay", TimeValue(Time(delay) + longer));
      auto devices = link.Install(switches.Get(leaf), switches.Get(2 + spine));
      install_port(leaf, devices.Get(0));
      install_port(2 + spine, devices.Get(1));
      auto interfaces = addresses.Assign(devices);
      balancers[leaf]->AddUplink({devices.Get(0), interfaces.GetAddress(1)});
      addresses.NewNetwork();
    }
    auto routing = DynamicCast<Ipv4ListRouting>(switches.Get(leaf)->GetObject<Ipv4>()->GetRoutingProtocol());
    if (spines > 1) routing->AddRoutingProtocol(balancers[leaf], 10);
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();

  std::ifstream file(argv[6]);
  std::vector<std::unique_ptr<Flow>> flows;
  for (Flow flow; file >> flow.from >> flow.to >> flow.bytes >> flow.start_ns;)
    flows.push_back(std::make_unique<Flow>(flow));
  uint16_t port = 1024;
  unsigned number = 0;
  for (auto &it : flows) {
    Flow *flow = it.get();
    flow->listener = Socket::CreateSocket(hosts.Get(flow->to), TcpSocketFactory::GetTypeId());
    flow->listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    flow->listener->Listen();
    flow->listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                      MakeBoundCallback(&Accept, flow));
    std::ostream *traced = ++number == trace ? &std::cout : nullptr;
    const auto sender = Sender::Create(hosts.Get(flow->from), control == "dctcp", *mends, traced);
    Simulator::Schedule(NanoSeconds(flow->start_ns), &Start, flow, sender, Address(InetSocketAddress(address[flow->to], port++)));
  }
  if (trace > flows.size()) {
    std::cerr << "there is no flow " << trace << "\n";
    return 2;
  }
  const std::clock_t before = std::clock();
  Simulator::Stop(Seconds(100));
  Simulator::Run();
  const double seconds = double(std::clock() - before) / CLOCKS_PER_SEC;
  for (auto &flow : flows) {
    if (flow->end.IsZero()) {
      std::cerr << "a flow of " << flow->bytes << " bytes did not arrive\n";
      return 1;
    }
    std::cout << (flow->end - flow->begin).GetNanoSeconds() << ' ' << flow->sender->Timeouts() << "\n";
  }
  uint64_t dropped = 0;
  for (const auto &port : ports) dropped += port->GetStats().nTotalDroppedPackets;
  std::cout << "dropped " << dropped << "\n";
  std::cout << "seconds " << seconds << "\n";
  Simulator::Destroy();
}
