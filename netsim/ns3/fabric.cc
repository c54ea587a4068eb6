// The fabric of `netsim` with two leaves in ns-3, for the flows of a file.
//
//   fabric HOSTS_PER_LEAF GBPS DELAY_US BUFFER_PACKETS MARK_PACKETS FLOWS
//          [--spines=N] [--slowUs=US] [--control=dctcp|newreno] [--policy=rps|letflow] [--gapUs=US]
//          [--pias=BYTES] [--seed=N]
//
// Links of the first spine take `slowUs` longer. With several spines the leaves choose one by `policy`: for each
// packet, or for each flowlet. With `pias` switches have two queues, and a segment at or beyond so many bytes of
// its flow waits in the second.
//
// A line of FLOWS is a flow: from, to, bytes, start in ns. Prints a line a flow, its completion
// time in ns, from the moment when its connection stands to the arrival of its last byte; then
// `seconds`, the processor time of the run.

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

using namespace ns3;

namespace {

struct Flow {
  unsigned from, to;
  uint64_t bytes, start_ns;
  uint64_t sent = 0, arrived = 0;
  Time begin, end;
  Ptr<Socket> listener, sender;
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

void Start(Flow *flow, Ptr<Node> node, Address to) {
  flow->sender = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
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
  unsigned spines = 1, seed = 1;
  uint64_t pias = 0;
  double slow_us = 0, gap_us = 500;
  std::string control = "dctcp", policy = "rps";
  CommandLine options;
  options.AddValue("spines", "spines", spines);
  options.AddValue("slowUs", "what links of the first spine take longer", slow_us);
  options.AddValue("control", "dctcp or newreno", control);
  options.AddValue("policy", "rps or letflow", policy);
  options.AddValue("gapUs", "a longer silence ends a flowlet", gap_us);
  options.AddValue("pias", "bytes of a flow that go first", pias);
  options.AddValue("seed", "of the choice of paths", seed);
  options.Parse(argc - 6, argv + 6);
  RngSeedManager::SetRun(seed);
  const unsigned hosts_per_leaf = std::stoul(argv[1]);
  const std::string rate = std::string(argv[2]) + "Gbps", delay = std::string(argv[3]) + "us";
  const uint32_t buffer = std::stoul(argv[4]);
  const double mark = std::stod(argv[5]);

  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(control == "dctcp" ? TcpDctcp::GetTypeId() : TcpNewReno::GetTypeId()));
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TcpClassicRecovery::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
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
    const auto root = marking.SetRootQueueDisc("ns3::PrioQueueDisc", "Priomap", StringValue("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"));
    marking.AddPacketFilter(root, "Pias", "Bytes", UintegerValue(pias));
    const auto classes = marking.AddQueueDiscClasses(root, 2, "ns3::QueueDiscClass");
    for (const auto it : classes) marking.AddChildQueueDisc(root, it, "ns3::RedQueueDisc");
  } else if (control == "dctcp") {
    marking.SetRootQueueDisc("ns3::RedQueueDisc");
  } else {
    marking.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, buffer)));
  }
  patient.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  std::vector<Ipv4Address> address(hosts.GetN());
  for (unsigned host = 0; host < hosts.GetN(); host++) {
    auto devices = link.Install(hosts.Get(host), switches.Get(host / hosts_per_leaf));
    patient.Install(devices.Get(0));
    marking.Install(devices.Get(1));
    address[host] = addresses.Assign(devices).GetAddress(0);
    addresses.NewNetwork();
  }
  Ptr<Balancer> balancers[2];
  for (unsigned leaf = 0; leaf < 2; leaf++) {
    balancers[leaf] = Create<Balancer>(policy == "letflow", MicroSeconds(gap_us));
    for (unsigned host = leaf * hosts_per_leaf; host < (leaf + 1) * hosts_per_leaf; host++)
      balancers[leaf]->AddHost(address[host]);
    for (unsigned spine = 0; spine < spines; spine++) {
      const Time longer = NanoSeconds(spine == 0 ? uint64_t(slow_us * 1000) : 0);
      link.SetChannelAttribute("Delay", TimeValue(Time(delay) + longer));
      auto devices = link.Install(switches.Get(leaf), switches.Get(2 + spine));
      marking.Install(devices);
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
  for (auto &it : flows) {
    Flow *flow = it.get();
    flow->listener = Socket::CreateSocket(hosts.Get(flow->to), TcpSocketFactory::GetTypeId());
    flow->listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    flow->listener->Listen();
    flow->listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address &>(),
                                      MakeBoundCallback(&Accept, flow));
    Simulator::Schedule(NanoSeconds(flow->start_ns), &Start, flow, hosts.Get(flow->from),
                        Address(InetSocketAddress(address[flow->to], port++)));
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
    std::cout << (flow->end - flow->begin).GetNanoSeconds() << "\n";
  }
  std::cout << "seconds " << seconds << "\n";
  Simulator::Destroy();
}
